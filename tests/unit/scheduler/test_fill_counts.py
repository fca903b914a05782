"""A worker's death loses no KV: whoever goes on begins where the pool's own fill counts end."""

import pytest

from libs.contracts.messages import Delta
from services.scheduler.state import DECODE
from tests.fakes.engine import expected
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell, hybrid, params, prompt

PROMPT, SAMPLING = prompt(40), params(100)
EXPECTED = expected(PROMPT, SAMPLING)[0]


def unreported(steps: int, *, at: int = 20) -> tuple[Cell, FakeWorker]:
    """A cell whose worker has made so many steps that its scheduler has not heard of, and its gateway has."""
    cell = hybrid()
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: cell.choice("r").generated == at)
    [worker] = cell.workers.values()
    for _ in range(steps):
        worker.boundary()
    return cell, worker


@pytest.mark.parametrize("steps", [1, 4, 5, 12, 21])
def test_only_the_last_position_is_computed_again(steps: int) -> None:
    """Within a block, at its end, and over the next ones: as many steps as tokens are missing."""
    cell, worker = unreported(steps)
    cell.replace(worker)
    known = cell.choice("r").generated
    assert known == 20 + steps
    cell.run()
    [replacement] = cell.workers.values()
    assert replacement.steps == len(EXPECTED) - known + 1, "the last one confirms the removal"
    assert cell.state.counts["recomputed_tokens"] == 0
    assert cell.log("r") == tuple(cell.gateway.held["r"].ids) == EXPECTED
    assert cell.deliver("r") and cell.is_clean


def test_what_the_pool_lost_is_computed_again() -> None:
    """Fill counts are what counts, not what somebody remembers."""
    cell, worker = unreported(12)
    table = cell.choice("r").table
    cell.pool.fill_counts_N[table[4]] = 0  # positions 64 …: of them 7 were written
    cell.replace(worker)
    cell.run()
    assert cell.state.counts["recomputed_tokens"] == 40 + 32 - 1 - 64
    assert cell.log("r") == EXPECTED


def test_a_second_death_loses_nothing_either() -> None:
    """The one that took over dies before it has reported a step; what the first had written is still there."""
    cell, worker = unreported(12)
    second = cell.replace(worker)
    cell.run(lambda: bool(cell.choice("r").worker))
    second.boundary()
    cell.replace(second)
    cell.run()
    assert cell.state.counts["recomputed_tokens"] == 0
    assert cell.log("r") == EXPECTED
    assert cell.deliver("r") and cell.is_clean


def test_tokens_of_the_second_tell_nothing_of_what_the_first_wrote() -> None:
    """It draws some and dies unheard; its copy's source is what the first, thawed and fenced, goes on writing."""
    cell, worker = unreported(12)
    cell.close_link(worker)
    second = cell.add_worker("decode-2", DECODE)
    cell.pass_while_alive(1.0)
    worker.garbles = cell.gateway.is_fenced
    cell.run(lambda: bool(cell.choice("r").worker))
    for _ in range(5):
        second.boundary()
        worker.boundary()
    assert len(cell.gateway.held["r"].ids) == 36
    cell.replace(second)
    cell.run()
    assert cell.log("r") == EXPECTED


def test_a_log_of_another_attempt_tells_nothing_of_what_this_one_wrote() -> None:
    """Its gateway listens to a later one: this one never drew what is known, and fenced it writes what it likes."""
    cell, worker = unreported(0)
    worker.garbles = lambda resident: True
    cell.gateway.held["r"].epoch, cell.gateway.held["r"].ids = 5, list(EXPECTED[:30])
    for _ in range(12):
        worker.boundary()
    cell.add_worker("decode-2", DECODE)
    cell.close_link(worker)
    cell.pass_while_alive(1.0)
    cell.run()
    assert cell.gateway.held["r"].epoch == 6 and cell.log("r") == EXPECTED


def test_a_log_of_an_older_attempt_tells_nothing_either() -> None:
    """The gateway had more than what was generated again without its answer, and says so when that is lost."""
    cell = Cell(term=2)
    worker = cell.add_worker("decode-1", DECODE)
    cell.gateway_answers = False
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.gateway.held["r"].ids = list(EXPECTED[:30])
    cell.pass_while_alive(1.0)
    cell.run(lambda: cell.choice("r").generated == 11)
    cell.add_worker("decode-2", DECODE)
    cell.close_link(worker)
    cell.pass_while_alive(1.0)
    cell.asks.pop(0)  # of the beginning: it would be too old
    worker.garbles = lambda resident: True
    for _ in range(12):
        worker.boundary()
    cell.gateway_answers = True
    cell.turn()
    cell.run()
    assert cell.log("r") == EXPECTED


def test_who_is_fenced_early_may_write_what_nobody_reads() -> None:
    """A prompt under way: what the frozen one may write after its fence is not believed, whatever the counts say."""
    cell = hybrid(max_chunk_tokens=16)
    cell.submit("r", PROMPT, SAMPLING)
    cell.run(lambda: cell.choice("r").cursor == 16)
    [worker] = cell.workers.values()
    worker.garbles = lambda resident: True
    other = cell.add_worker("decode-2", DECODE)
    cell.gateway_answers = False
    cell.pass_while_alive(1.5)
    assert [kill.incarnation for kill in cell.killed] == [worker.incarnation]
    worker.boundary()
    while cell.asks:
        cell.answer_ask()
    cell.gateway_answers = True
    cell.run()
    assert other.versions and cell.log("r") == EXPECTED


def test_blocks_of_a_version_that_was_not_begun_are_not_believed() -> None:
    """They hold what somebody else wrote."""
    cell = hybrid()
    cell.submit("r", PROMPT, params(500))
    cell.run(lambda: cell.choice("r").generated == 2)
    [worker] = cell.workers.values()
    cell.lose = lambda send: isinstance(send.message, Delta) and bool(send.message.grants)
    before = len(cell.choice("r").table)
    cell.run(lambda: len(cell.choice("r").table) > before)
    book = cell.state.workers[worker.incarnation]
    assert book.begun_blocks(cell.choice("r")) == before
    cell.lose = lambda send: False
    cell.replace(worker)
    cell.run()
    assert cell.log("r") == expected(PROMPT, params(500))[0]
