"""A term opens: who may still act for the older one is found, and no request is computed twice for nothing."""

import pytest

from libs.contracts.messages import Gone, LogQuery
from services.scheduler.choice import Phase
from services.scheduler.events import AskHost, KillWorker, Listed
from services.scheduler.state import DECODE
from tests.fakes.engine import expected
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell, params, prompt

PROMPT, SAMPLING = prompt(40), params(60)
EXPECTED = expected(PROMPT, SAMPLING)[0]


def succeeded(generated: int = 12, **changes: object) -> tuple[Cell, FakeWorker]:
    """A cell of term 2 and the worker of term 1, in the middle of `r`, not yet attached."""
    old = Cell()
    worker = old.add_worker("decode-1", DECODE)
    old.submit("r", PROMPT, SAMPLING)
    old.run(lambda: old.choice("r").generated == generated)
    new = Cell(term=2, **changes)  # type: ignore[arg-type]
    new.pool, new.gateway = old.pool, old.gateway
    worker.detach()
    new.workers[worker.incarnation] = worker
    return new, worker


def test_a_new_term_goes_on_from_what_the_gateway_holds() -> None:
    """Above the epochs of both, with the tokens that are known."""
    cell, worker = succeeded()
    cell.attach(worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    assert cell.choice("r").generated == 12
    cell.run()
    assert tuple(cell.gateway.held["r"].ids) == cell.log("r") == EXPECTED
    assert cell.gateway.held["r"].epoch == 2
    assert worker.steps < 12 + 1 + len(EXPECTED), "it drew no token again"


def test_what_the_gateway_has_whole_or_not_at_all_is_acknowledged() -> None:
    """Nothing is computed for either."""
    cell, _ = succeeded()
    cell.gateway.held["r"].end = "stop"
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.gateway.close("gone")
    arrival = cell.arrival("gone", PROMPT, SAMPLING, is_older=True)
    cell.gateway.close("gone")
    cell.turn(arrival)
    assert cell.acked == ["r", "gone"] and not cell.state.choices


def test_without_an_answer_it_is_generated_again() -> None:
    """After a second; a late answer that nobody wants it still counts."""
    cell, worker = succeeded()
    cell.gateway_answers = False
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    [ask] = cell.asks
    assert ask.message == LogQuery(("r",), 2, "c0")
    cell.pass_while_alive(0.5)
    assert cell.choice("r").phase is Phase.ASKING
    cell.pass_while_alive(0.5)
    assert cell.choice("r").phase is Phase.WAITING and cell.choice("r").generated == 0
    cell.attach(worker)
    cell.run(lambda: cell.choice("r").generated > 14)
    assert tuple(cell.gateway.held["r"].ids) == EXPECTED[: len(cell.gateway.held["r"].ids)]
    cell.gateway.close("r")
    cell.answer_ask()
    assert cell.acked == ["r"]


def test_what_a_worker_told_of_an_older_term_is_known() -> None:
    """Its Hello may know more than a gateway that did not answer."""
    cell, worker = succeeded()
    cell.gateway_answers = False
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.pass_while_alive(1.0)
    cell.attach(worker)
    cell.run(lambda: bool(cell.choice("r").worker))
    assert cell.choice("r").generated >= 12 and cell.choice("r").epoch == 2
    cell.run()
    assert cell.log("r") == EXPECTED


def test_a_new_request_is_not_asked_about() -> None:
    """Nobody can have computed it."""
    cell = Cell(term=2)
    cell.add_worker("decode-1", DECODE)
    cell.gateway_answers = False
    cell.submit("r", PROMPT, SAMPLING)
    cell.run()
    assert cell.log("r") == EXPECTED


def test_nothing_is_granted_before_all_workers_of_the_host_are_known() -> None:
    """One that says Hello in time is welcome; one that does not is ended after a second."""
    cell, worker = succeeded()
    cell.host_answers = False
    cell.attach(worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.run()
    assert cell.host_asks == [AskHost("host")]
    assert cell.choice("r").reason.value == "unknown_workers"

    cell.turn(Listed("host", (worker.incarnation, "late", "frozen")))
    cell.run()
    late = FakeWorker("late", DECODE, cell.pool)
    late.identity = late.residents._identity = late.residents._identity.__class__(
        **{name: getattr(late.identity, name) for name in late.identity.__slots__} | {"incarnation": "late"}
    )
    cell.workers["late"] = late
    cell.attach(late)
    cell.pass_while_alive(0.5)
    assert cell.killed == []
    cell.pass_while_alive(0.5)
    assert cell.killed == [KillWorker("host", "frozen")]
    assert not cell.choice("r").worker
    cell.turn(Gone("frozen"))
    assert cell.choice("r").worker
    cell.run()
    assert cell.log("r") == EXPECTED


@pytest.mark.parametrize(("term", "asks"), [(1, 0), (2, 1)])
def test_the_first_term_has_nobody_to_look_for(term: int, asks: int) -> None:
    """Workers that are still starting must not be ended; a host is asked once a term."""
    cell = Cell(term=term)
    cell.host_answers = False
    for name in ("decode-1", "decode-2"):
        cell.add_worker(name, DECODE)
    assert len(cell.host_asks) == asks
