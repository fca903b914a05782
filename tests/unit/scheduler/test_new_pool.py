"""A cell whose pool went with all its workers: another pool is another term's, as these tables are about the old."""

from dataclasses import replace

import pytest

from libs.contracts.errors import Fenced
from libs.contracts.messages import Hello
from services.scheduler.events import Resign
from services.scheduler.reign import resign
from services.scheduler.state import DECODE
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell, hybrid, params, prompt


def begun() -> tuple[Cell, FakeWorker]:
    """A cell whose one worker has begun a request."""
    cell = hybrid()
    (worker,) = cell.workers.values()
    cell.submit("r", prompt(40), params(8))
    cell.step(worker)
    return cell, worker


def newcomer(worker: FakeWorker) -> Hello:
    """Of a worker like this one, on another pool."""
    return replace(worker.identity, incarnation="new-life", pool="another")


def test_a_worker_of_another_pool_is_refused_beside_one_that_lives() -> None:
    """It was started wrongly, and asking again would not help."""
    cell, worker = begun()
    cell.turn(newcomer(worker))
    assert [refused.retry for refused in cell.refused] == [False] and not cell.resigned


def test_it_asks_again_while_the_lost_ones_may_still_write() -> None:
    """Their host has not yet said that they are gone."""
    cell, worker = begun()
    cell.close_link(worker)
    cell.pass_while_alive(3.0)
    assert cell.state.workers[worker.incarnation].is_lost
    cell.turn(newcomer(worker))
    assert [refused.retry for refused in cell.refused] == [True] and not cell.resigned


def test_once_nobody_is_left_the_term_ends() -> None:
    """Its successor takes the requests up from their queue and the gateways, in the new pool."""
    cell, worker = begun()
    cell.die(worker)
    cell.turn(newcomer(worker))
    assert [each.reason for each in cell.resigned] == ["unlike the cell's other workers in: KV pool"]
    assert not cell.refused and not cell.state.workers

    successor = Cell(term=2)
    other = successor.add_worker("decode-2", DECODE)
    successor.submit("r", prompt(40), params(8), is_older=True)
    successor.run()
    assert len(successor.log("r")) == 8 and other.steps


def test_whoever_cannot_serve_anywhere_ends_no_term() -> None:
    """A role that there is not, in an empty cell."""
    cell, worker = begun()
    cell.die(worker)
    cell.turn(replace(worker.identity, incarnation="odd", pool="another", role="both"))
    assert len(cell.refused) == 1 and not cell.resigned


def test_who_resigns_is_fenced() -> None:
    """The process ends, and another follows."""
    with pytest.raises(Fenced, match="KV pool"):
        resign(Resign("unlike in: KV pool"))
