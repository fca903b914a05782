"""How the answers of the services become the status of the stack."""

from deploy.local.run_dir import Running, State
from deploy.local.status import merge
from libs.contracts.messages import CellStatus, ServiceStatus
from tests.fakes.run_state import run_state

CELL = CellStatus("c0", "m", 1, ("d0",), 100, 60, 30, 8, 2, 16, 3, 4)


def state(*children: Running) -> State:
    return run_state(base_url="http://127.0.0.1:1/v1", kv_blocks=100, children=children)


def answer(service: str, pid: int, *, ready: bool = True, cells: tuple[CellStatus, ...] = ()) -> ServiceStatus:
    return ServiceStatus(service, f"{service}-x", pid, 8000 if service == "gateway" else 0, ready, "", cells)


def test_each_child_is_shown_with_its_own_answer() -> None:
    """Answers belong to children by pid."""
    status = merge(
        state(Running("gateway-0", 11, 1), Running("tokenizer-0", 12, 1)),
        {12: answer("tokenizer", 12, ready=False), 11: answer("gateway", 11)},
    )

    assert [(s.name, s.service, s.pid, s.port, s.ready) for s in status.services] == [
        ("gateway-0", "gateway", 11, 8000, True),
        ("tokenizer-0", "tokenizer", 12, 0, False),
    ]


def test_a_child_that_does_not_answer_is_not_ready() -> None:
    """Frozen, dead and waiting to be started again are all shown; brokers are asked nothing."""
    status = merge(state(Running("nats", 9, 1), Running("tokenizer-0", 12, 1), Running("gateway-0", 0, 0)), {})

    assert [(s.name, s.ready, s.detail) for s in status.services] == [
        ("nats", True, ""),
        ("tokenizer-0", False, "no answer"),
        ("gateway-0", False, "not running"),
    ]


def test_blocks_and_queues_are_those_of_the_cells() -> None:
    """The scheduler's answer carries the numbers of its cell."""
    status = merge(state(Running("scheduler-0", 5, 1)), {5: answer("scheduler", 5, cells=(CELL,))})

    blocks = status.blocks
    assert (blocks.total, blocks.free, blocks.cached, blocks.held, blocks.freeing) == (100, 60, 30, 8, 2)
    assert (status.waiting, status.running) == (3, 4)
