"""What a scheduler must know of the log-probabilities of a request that has ended."""

from array import array
from collections.abc import Sequence

from libs.contracts.messages import PromptScores, SamplingParams
from libs.engine.rows import SampleSpec
from services.scheduler.group import Group
from services.scheduler.score_log import ScoreLog, Scores
from tests.fakes.engine import draw, scores_of


def check_scores(group: Group, prompt_ids: Sequence[int], sampling: SamplingParams) -> None:
    """Those of the prompt, unless its gateway ended it before; those of every token, in the order of the log."""
    is_cut = any(choice.stop_position >= 0 for choice in group.choices)
    if sampling.prompt_logprobs >= 0:
        expected = scores_of(array("I", prompt_ids), 1, prompt_ids[1:], sampling.prompt_logprobs)
        log = group.leader.prompt_scores
        assert log is not None
        assert is_cut or len(log) == len(prompt_ids) - 1
        assert log.read(0, len(log)) == _first(expected, len(log))
    if sampling.logprobs >= 0:
        for choice in group.answers:
            known, ids = choice.logprobs, choice.generated_ids
            assert is_cut or len(known) == choice.generated
            assert known.read(0, len(known)) == _drawn(prompt_ids, sampling, choice.index, ids[: len(known)])


def _first(scores: PromptScores, count: int) -> Scores:
    log = ScoreLog()
    log.extend(Scores(scores.logprobs, scores.ranks, scores.top_ids, scores.top_logprobs))
    log.cut(count)
    return log.read(0, count)


def _drawn(prompt_ids: Sequence[int], sampling: SamplingParams, choice: int, ids: Sequence[int]) -> Scores:
    """What drawing these ids tells of each."""
    log, before = ScoreLog(), array("I", prompt_ids)
    for position, token in enumerate(ids):
        drawn = draw(before, SampleSpec(sampling, position, choice, ()))
        assert drawn.token_id == token and drawn.logprob is not None
        log.extend(Scores((drawn.logprob,), (), drawn.top_ids, drawn.top_logprobs))
        before.append(token)
    return log.read(0, len(ids))
