"""A worker that is told to stop gives what it has to others: nothing is lost, repeated or computed again."""

import pytest

from libs.contracts.messages import Done, Exited, Leaving
from services.scheduler.events import LinkClosed
from services.scheduler.state import DECODE, PREFILL
from tests.fakes.engine import expected
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell, hybrid, params, prompt

PROMPT, SAMPLING = prompt(40), params(60)
EXPECTED = expected(PROMPT, SAMPLING)[0]


def leave(cell: Cell, worker: FakeWorker) -> None:
    cell.turn(Leaving(worker.incarnation, cell.state.term))


def close(cell: Cell, worker: FakeWorker) -> None:
    """It has nothing left, and ends."""
    assert not worker.residents.hello().residents
    worker.detach()
    del cell.workers[worker.incarnation]
    cell.turn(LinkClosed(worker.incarnation))


@pytest.mark.parametrize("generated", [0, 1, 9, 20])
def test_another_worker_goes_on(generated: int) -> None:
    """In the same epoch, from the last position: nobody was in doubt."""
    cell = hybrid(max_chunk_tokens=16)
    [worker] = cell.workers.values()
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: cell.choice("r").cursor > 0 and cell.choice("r").generated == generated)
    other = cell.add_worker("decode-2", DECODE)
    leave(cell, worker)
    cell.run()
    close(cell, worker)
    assert cell.log("r") == tuple(cell.gateway.held["r"].ids) == EXPECTED
    assert cell.gateway.held["r"].epoch == 1
    assert other.steps and not cell.killed
    assert cell.state.counts["recomputed_tokens"] == cell.state.counts["moved_sequences"] == 0
    assert cell.deliver("r") and cell.is_clean


def test_alone_it_leaves_its_work_to_the_next_one() -> None:
    """What it had waits with its blocks."""
    cell = hybrid()
    [worker] = cell.workers.values()
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: cell.choice("r").generated == 20)
    leave(cell, worker)
    cell.run()
    close(cell, worker)
    assert cell.choice("r").reason.value == "no_worker" and cell.choice("r").keeps_blocks
    successor = cell.add_worker("decode-1+2", DECODE)
    cell.run()
    assert cell.log("r") == EXPECTED
    assert worker.steps + successor.steps <= len(EXPECTED) + 3


def test_nothing_new_comes_to_it() -> None:
    """Requests wait, or go elsewhere; its status says that it does not serve."""
    cell = hybrid()
    [worker] = cell.workers.values()
    leave(cell, worker)
    cell.submit("r", PROMPT, SAMPLING)
    cell.run()
    assert not cell.choice("r").worker and cell.status.workers == ()
    cell.add_worker("decode-2", DECODE)
    cell.run()
    assert cell.log("r") == EXPECTED


def test_a_prompt_under_way_goes_to_another_prefill_worker() -> None:
    """And one that is to be decoded by the leaving worker is decoded by another."""
    cell = Cell(role="disaggregated", max_chunk_tokens=16)
    prefill, decode = cell.add_worker("prefill-1", PREFILL), cell.add_worker("decode-1", DECODE)
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: cell.choice("r").cursor == 16)
    cell.add_worker("prefill-2", PREFILL)
    cell.add_worker("decode-2", DECODE)
    leave(cell, prefill)
    leave(cell, decode)
    cell.run()
    close(cell, prefill)
    close(cell, decode)
    assert cell.log("r") == EXPECTED and cell.state.counts["recomputed_tokens"] == 0
    assert cell.deliver("r") and cell.is_clean


def test_one_that_dies_while_it_leaves_is_lost() -> None:
    """It has not confirmed anything."""
    cell = hybrid()
    [worker] = cell.workers.values()
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: cell.choice("r").generated == 20)
    leave(cell, worker)
    cell.replace(worker)
    cell.run()
    assert cell.log("r") == EXPECTED and cell.gateway.held["r"].epoch == 2
    assert cell.deliver("r") and cell.is_clean


def test_an_end_that_the_host_reports_moves_the_work_at_once() -> None:
    """Nobody waits for the link to be missed."""
    cell = hybrid()
    [worker] = cell.workers.values()
    other = cell.add_worker("decode-2", DECODE)
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: cell.choice("r").generated == 9)
    worker.detach()
    del cell.workers[worker.incarnation]
    assert cell.ask(Exited(worker.incarnation)) == Done(True)
    assert cell.choice("r").worker == other.incarnation
    assert cell.ask(Exited(worker.incarnation)) == Done(False)
    cell.run()
    assert cell.log("r") == EXPECTED and cell.deliver("r") and cell.is_clean
