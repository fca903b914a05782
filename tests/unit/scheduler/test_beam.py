"""Beam search: the best hypotheses of a plain search, whatever becomes of workers, blocks and schedulers on the way."""

import pytest

from libs.contracts.messages import Candidate, Finished, SamplingParams
from services.scheduler.beam import Continuation, Search, continuations
from services.scheduler.score_log import ScoreLog
from services.scheduler.state import DECODE
from tests.fakes.engine import best_of_beams
from tests.unit.scheduler.cancels import play_cancel
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt

WIDE = params(12, beam_width=4)
ENDING = params(30, beam_width=4, ignore_eos=False, stop_token_ids=tuple(range(100, 500)))
SAMPLINGS = (WIDE, params(1, beam_width=3), params(40, beam_width=3, length_penalty=0.0), ENDING)
MAKERS = pytest.mark.parametrize("make", [hybrid, disaggregated])


def answers(cell: Cell, count: int) -> list[tuple[int, ...]]:
    return [cell.log("r", index) for index in range(count)]


def ids_of(tokens: int, sampling: SamplingParams, count: int) -> list[tuple[int, ...]]:
    return [ids for ids, _ in best_of_beams(prompt(tokens), sampling, count)]


def ends(cell: Cell) -> dict[int, tuple[int, str]]:
    return {told.choice: (told.total, told.reason) for told in cell.told if isinstance(told, Finished)}


def test_the_best_continuations_live_on_and_ends_before_them_are_kept() -> None:
    """By score, then parent, then id; whatever ends behind the last that lives on is not looked at."""
    parents = [
        (-1.0, (Candidate(7, -1.0), Candidate(3, -2.0, is_end=True), Candidate(9, -4.0))),
        (-1.5, (Candidate(5, -0.5), Candidate(2, -1.5), Candidate(1, -1.75, is_end=True))),
    ]
    assert continuations(parents, 3) == [
        Continuation(-2.0, 0, 7, False, -1.0),
        Continuation(-2.0, 1, 5, False, -0.5),
        Continuation(-3.0, 0, 3, True, -2.0),
        Continuation(-3.0, 1, 2, False, -1.5),
    ]
    assert [one.token_id for one in continuations([(0.0, (Candidate(8, -1.0), Candidate(4, -1.0)))], 1)] == [4]


def test_a_search_is_over_when_nobody_can_be_better() -> None:
    """With as many finished ones as its width: at once if it is early, else when the best live one is not better."""
    search = Search(2, length_penalty=1.0, is_early=False)
    search.finish(-4.0, (1, 2), "stop", ScoreLog())
    assert not search.is_over(-9.0, 3)
    search.finish(-3.0, (1, 3, 4), "stop", ScoreLog())
    search.finish(-9.0, (5,), "stop", ScoreLog())
    assert [one.ids for one in search.finished] == [(1, 3, 4), (1, 2)]
    assert not search.is_over(-5.9, 3) and search.is_over(-6.0, 3)
    search.is_early = True
    assert search.is_over(-0.1, 3)


@MAKERS
@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 48, 50])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_answers_are_the_best_hypotheses(make: type[Cell], tokens: int, sampling: SamplingParams) -> None:
    """In their order, each with its own end; the prompt is computed once, and nothing is left."""
    cell = make()
    cell.submit("r", prompt(tokens), sampling, choices=3)
    cell.run()
    best = best_of_beams(prompt(tokens), sampling, 3)
    assert answers(cell, 3) == [ids for ids, _ in best]
    logs = [choice.logprobs for choice in cell.state.requests["r"].answers]
    assert [len(log) for log in logs] == [len(ids) for ids, _ in best]
    scores = [sum(log.logprobs) / len(log) ** sampling.length_penalty for log in logs]
    assert scores == sorted(scores, reverse=True)
    assert ends(cell) == {index: (len(ids), reason) for index, (ids, reason) in enumerate(best)}
    rows = [row for worker in cell.workers.values() for row in worker.rows]
    assert sum(len(row.token_ids) for row in rows if row.base < tokens) == tokens
    assert all(not held.ids for held in cell.gateway.choices["r"]), "nothing is told before it is over"
    assert cell.deliver("r") and cell.is_clean


@pytest.mark.parametrize("changes", [{"early_stopping": True}, {"length_penalty": 2.0}, {"min_tokens": 6}])
def test_how_a_search_ends_is_the_request_s_to_say(changes: dict[str, object]) -> None:
    """Early or not, favouring long ones or short ones, not before min_tokens."""
    sampling = params(30, beam_width=4, ignore_eos=False, stop_token_ids=tuple(range(100, 500)), **changes)
    cell = hybrid()
    cell.submit("r", prompt(20), sampling, choices=4)
    cell.run()
    assert answers(cell, 4) == ids_of(20, sampling, 4)
    assert cell.deliver("r") and cell.is_clean


def test_nothing_of_a_search_is_told_before_it_is_over() -> None:
    """A gateway that asks for lost tokens must not get those of a hypothesis that may still be given up."""
    cell = hybrid()
    cell.submit("r", prompt(20), WIDE, choices=2)
    cell.run(until=lambda: cell.choice("r", 3).generated > 4)
    resent = cell.resend("r", 0)
    assert resent.known and (resent.ids, resent.end) == ((), "")


@MAKERS
@pytest.mark.parametrize("steps", range(12))
def test_a_worker_s_death_changes_no_answer(make: type[Cell], steps: int) -> None:
    """Every hypothesis goes on from what is committed, and the search with it."""
    cell = make(max_chunk_tokens=16)
    cell.add_worker("decode-2", DECODE)
    cell.submit("r", prompt(50), WIDE, choices=2)
    for _ in range(steps):
        for worker in list(cell.workers.values()):
            cell.step(worker)
    for worker in list(cell.workers.values()):
        book = cell.state.workers.get(worker.incarnation)
        if book is not None and book.residents:
            cell.replace(worker)
    cell.run()
    assert answers(cell, 2) == ids_of(50, WIDE, 2)
    told = [message for message in cell.told if isinstance(message, Finished)]
    assert all(message.epoch >= cell.gateway.choices["r"][message.choice].epoch for message in told)
    assert cell.deliver("r") and cell.is_clean


@pytest.mark.parametrize("blocks", [6, 7, 9])
def test_a_short_pool_costs_time_and_no_answer(blocks: int) -> None:
    """Hypotheses that find no block go through the queue."""
    sampling = params(40, beam_width=4)
    cell = hybrid(blocks=blocks)
    cell.submit("r", prompt(20), sampling, choices=2)
    cell.run()
    assert answers(cell, 2) == ids_of(20, sampling, 2)
    assert cell.deliver("r") and cell.is_clean


def test_beside_others_everybody_gets_what_is_theirs() -> None:
    """Ordinary requests and searches share steps and blocks."""
    cell = hybrid(blocks=24)
    cell.submit("r", prompt(33), WIDE, choices=2)
    cell.submit("other", prompt(33, 500), params(30))
    cell.submit("s", prompt(33), params(20, beam_width=3), choices=1)
    cell.run()
    assert answers(cell, 2) == ids_of(33, WIDE, 2)
    assert cell.log("s") == ids_of(33, params(20, beam_width=3), 1)[0]


def test_a_cancel_ends_a_search_at_any_step() -> None:
    """Every block comes back."""
    for steps in range(10):
        play_cancel(WIDE, choices=2, steps=steps)


def test_an_order_that_got_lost_is_made_good() -> None:
    """What the worker holds of a step before is not taken for what the Snapshot names."""
    cell = hybrid()
    cell.submit("r", prompt(20), WIDE, choices=2)
    cell.run(until=lambda: cell.choice("r", 3).generated == 3)
    (worker,) = cell.workers.values()
    worker.detach()
    for message in worker.attach():
        cell.turn(message)
    cell.run()
    assert answers(cell, 2) == ids_of(20, WIDE, 2)


def test_output_that_is_not_finite_ends_the_request() -> None:
    """By a typed error, once."""
    cell = Cell()
    cell.add_worker("decode-1", DECODE, nan_ids=frozenset((best_of_beams(prompt(20), WIDE, 1)[0][0][2],)))
    cell.submit("r", prompt(20), WIDE, choices=2)
    cell.run()
    assert [told.error.code for told in cell.told] == ["numerical_error"]  # type: ignore[union-attr]
    cell.answer("r", live=True)
    assert cell.is_clean


def test_a_new_term_searches_again() -> None:
    """What was chosen so far is nobody's to tell; the answers are the same, in an epoch that the gateway hears."""
    cell = hybrid()
    (worker,) = cell.workers.values()
    cell.submit("r", prompt(50), WIDE, choices=2)
    cell.run(until=lambda: cell.choice("r", 3).generated > 3)
    cell.gateway.choices["r"][0].epoch = 4
    new = Cell(term=2)
    new.pool, new.gateway = cell.pool, cell.gateway
    new.workers[worker.incarnation] = worker
    worker.detach()
    new.attach(worker)
    new.turn(new.arrival("r", prompt(50), WIDE, choices=2, is_older=True))
    new.run()
    assert answers(new, 2) == ids_of(50, WIDE, 2)
    assert [told.epoch for told in new.told] == [4, 1]
