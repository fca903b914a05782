"""F22: a new term whose workers tell of something else than what is known: unknown blocks stay untouched."""

from dataclasses import replace

import pytest

from libs.contracts.messages import Gone, HeldSequence, Hello
from services.scheduler.state import DECODE
from tests.fakes.engine import expected
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell, params, prompt

PROMPT, SAMPLING = prompt(40), params(60)
EXPECTED = expected(PROMPT, SAMPLING)[0]
OTHER = prompt(40, 300)


def succeeded() -> tuple[Cell, FakeWorker]:
    """Term 2 of a cell whose worker computes two requests, not yet attached."""
    old = Cell()
    worker = old.add_worker("decode-1", DECODE)
    old.submit("r", PROMPT, SAMPLING)
    old.submit("other", OTHER, SAMPLING)
    old.run(lambda: old.choice("r").generated == 12)
    new = Cell(term=2)
    new.pool, new.gateway = old.pool, old.gateway
    new.gateway.resend = lambda request_id, choice, position: new.resend(request_id, position, choice).ids
    worker.detach()
    new.workers[worker.incarnation] = worker
    return new, worker


def attach(cell: Cell, worker: FakeWorker, **edits: tuple[int, ...]) -> None:
    """It says Hello, but tells other blocks of the named requests."""
    worker.on_frame = cell.gateway.frame
    for word in worker.attach():
        if isinstance(word, Hello):
            held = tuple(_edited(resident, edits) for resident in word.residents)
            word = replace(word, residents=held)
        cell.turn(word)


def test_blocks_of_an_unknown_request_stay_untouched_until_their_worker_is_gone() -> None:
    """Nothing is granted while it may write there; then they are free, and what was unknown is counted."""
    cell, worker = succeeded()
    attach(cell, worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.submit("new", PROMPT, SAMPLING)
    cell.step(cell.add_worker("decode-2", DECODE))
    cell.pass_while_alive(1.0)
    assert cell.state.is_open and cell.state.counts["unknown_resident"] == 1
    assert cell.choice("new").reason.value == "unknown_workers" and not cell.choice("new").table
    cell.pass_while_alive(5.0)  # decode-1 is frozen: it does not begin what would take them from it
    assert [kill.incarnation for kill in cell.killed] == [worker.incarnation]
    assert cell.choice("new").reason.value == "unknown_workers"
    del cell.workers[worker.incarnation]
    cell.turn(Gone(worker.incarnation))
    cell.run()
    for name in ("r", "new"):
        assert cell.log(name) == EXPECTED
        assert cell.deliver(name)
    assert cell.is_clean


def test_blocks_of_an_unknown_request_are_free_once_its_worker_has_begun_the_term() -> None:
    """It has dropped what nobody wants: there is nothing left to wait for."""
    cell, worker = succeeded()
    attach(cell, worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.pass_while_alive(1.0)
    cell.run()
    assert cell.state.counts["unknown_resident"] == cell.state.counts["adopted_sequences"] == 1
    assert cell.log("r") == EXPECTED and cell.deliver("r") and cell.is_clean


@pytest.mark.parametrize("named", [(0, 1, 2, 99), (0, 0, 1, 2), (0,)], ids=["outside", "twice", "too few"])
def test_what_cannot_be_is_generated_again(named: tuple[int, ...]) -> None:
    """A table beyond the pool, with a block twice, or shorter than what is committed: it is not gone on with."""
    cell, worker = succeeded()
    attach(cell, worker, r=named)
    for name, ids in (("r", PROMPT), ("other", OTHER)):
        cell.submit(name, ids, SAMPLING, is_older=True)
    cell.run()
    assert cell.state.counts["unsound_resident"] == cell.state.counts["adopted_sequences"] == 1
    assert (cell.log("r"), cell.log("other")) == (EXPECTED, expected(OTHER, SAMPLING)[0])
    assert cell.gateway.held["r"].epoch == 2


def test_no_block_gets_two_writers() -> None:
    """Two tell of the same blocks: one goes on in them, the other is generated again."""
    cell, worker = succeeded()
    theirs = next(held.table for held in worker.residents._held.values() if held.resident.request_id == "other")
    attach(cell, worker, r=tuple(theirs))
    for name, ids in (("r", PROMPT), ("other", OTHER)):
        cell.submit(name, ids, SAMPLING, is_older=True)
    assert cell.state.counts["unsound_resident"] == cell.state.counts["adopted_sequences"] == 1


def _edited(held: HeldSequence, edits: dict[str, tuple[int, ...]]) -> HeldSequence:
    return replace(held, block_table=edits.get(held.request_id, held.block_table))
