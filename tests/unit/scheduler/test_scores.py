"""Log-probabilities as the scheduler keeps and tells them: of tokens, of prompts, whatever becomes of workers."""

from array import array

import pytest

from libs.contracts.messages import PromptScores, Resend, Resent, Scored, ScoresQuery
from services.scheduler import apply_control
from services.scheduler.decision_words import decision_of
from services.scheduler.events import Reply
from services.scheduler.score_log import ScoreLog, Scores
from tests.fakes.engine import scores_of
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt
from tests.unit.scheduler.scored import check_scores

PROMPT = prompt(75)
WANTED = params(6, logprobs=2, prompt_logprobs=3)
MAKERS = pytest.mark.parametrize("make", [hybrid, disaggregated])


def scores_in(cell: Cell, first: int = 1) -> tuple[PromptScores, ...]:
    answer = cell.ask(ScoresQuery("r", first))
    assert isinstance(answer, Scored) and answer.known
    return answer.scores


@MAKERS
def test_a_prompt_is_scored_once_and_told_in_parts(make: type[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    """From any index on, as many as fit a reply; nothing from where there is nothing."""
    cell = make()
    cell.submit("r", PROMPT, WANTED)
    cell.run()
    expected = scores_of(array("I", PROMPT), 1, PROMPT[1:], 3)

    assert scores_in(cell) == (expected,)
    assert scores_in(cell, 74)[0].logprobs == expected.logprobs[73:]
    assert scores_in(cell, 75) == scores_in(cell, 0) == ()
    monkeypatch.setattr(apply_control, "RESEND_TOKENS_MAX", 40)
    (part,) = scores_in(cell, 5)
    assert (part.first, part.logprobs, part.top_ids) == (5, expected.logprobs[4:14], expected.top_ids[12:42])
    assert cell.ask(ScoresQuery("other", 1)) == Scored(False)


@MAKERS
def test_a_cached_prefix_is_not_taken_where_the_prompt_is_scored(make: type[Cell]) -> None:
    """All positions have to be computed; whoever comes after it finds the prefix as ever."""
    cell = make()
    cell.submit("before", PROMPT, params(2))
    cell.run()
    cell.submit("r", PROMPT, WANTED, choices=2)
    cell.run()
    assert cell.choice("r").cached_tokens == 0
    check_scores(cell.state.requests["r"], PROMPT, WANTED)

    cell.submit("after", PROMPT, params(2))
    cell.run()
    assert cell.choice("after").cached_tokens >= 64


@pytest.mark.parametrize(("tokens", "unreported"), [(300, 1), (60, 1), (60, 4)])
@pytest.mark.parametrize("logprobs", [-1, 2])
def test_what_a_lost_worker_wrote_without_a_word_is_scored_again(tokens: int, unreported: int, logprobs: int) -> None:
    """Its fill counts and its gateway show more than it told: of a scored prompt that does not count."""
    cell, wanted = hybrid(max_chunk_tokens=32), params(9, logprobs=logprobs, prompt_logprobs=1)
    cell.submit("r", prompt(tokens), wanted)
    cell.run(lambda: cell.choice("r").cursor > 0)
    [worker] = cell.workers.values()
    for _ in range(unreported):
        worker.boundary()
    log = cell.choice("r").prompt_scores
    assert log is not None and 0 < len(log) < tokens - 1

    cell.replace(worker)
    cell.run()

    check_scores(cell.state.requests["r"], prompt(tokens), wanted)
    assert cell.state.counts["score_gap"] == 0


def test_resent_tokens_come_with_all_that_is_told_of_them() -> None:
    """From any position on, evenly many alternatives for each."""
    cell = hybrid()
    cell.submit("r", PROMPT, WANTED)
    cell.run()
    whole, part = (cell.ask(Resend("r", 0, position)) for position in (0, 4))
    assert isinstance(whole, Resent) and isinstance(part, Resent)

    assert (len(whole.logprobs), len(whole.top_ids), len(whole.top_logprobs)) == (6, 12, 12)
    assert (part.logprobs, part.top_ids) == (whole.logprobs[4:], whole.top_ids[8:])


def test_a_log_of_scores_is_cut_and_read_by_ids() -> None:
    """However many alternatives there are for each."""
    log = ScoreLog()
    log.extend(Scores((-1.0, -2.0, -3.0), (1, 2, 3), (1, 2, 3, 4, 5, 6), (-1.0, -2.0, -3.0, -4.0, -5.0, -6.0)), skip=1)

    assert (len(log), log.tops) == (2, 2)
    assert log.read(1, 9) == Scores((-3.0,), (3,), (5, 6), (-5.0, -6.0))
    log.cut(1)
    assert log.read(0, 9) == Scores((-2.0,), (2,), (3, 4), (-3.0, -4.0))
    plain = ScoreLog().followed_by(-0.5)
    assert (plain.followed_by(-1.0).read(0, 9), len(plain)) == (Scores((-0.5, -1.0)), 1)


def test_an_order_of_a_scored_request_is_put_into_words() -> None:
    """What is asked for is a number, what is told of it a list that is only counted."""
    cell = hybrid()
    cell.submit("r", PROMPT, WANTED)
    [order] = [send for send in cell.sent if getattr(send.message, "added", ())]
    cell.run()
    scored = Reply(1, Scored(True, scores_in(cell)))

    decision = decision_of([order, scored], [])

    assert decision is not None
    assert "logprobs=2" in decision.words[0] and "prompt_logprobs=3" in decision.words[0]
    assert decision.words[1].count("74 ") == 2 and "222 top_ids" in decision.words[1]
