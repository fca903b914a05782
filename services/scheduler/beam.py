"""Beam search over plain values: which continuations live on, which hypotheses are finished, and when it is over.

A score is the sum of a hypothesis' float32 log-probabilities, added in float64 from its first token on. Finished ones
are compared by score / tokens ^ length_penalty. Ties: the better parent, then the lower token id; among finished ones
whoever was first.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from libs.contracts.messages import Candidate, SamplingParams
from services.scheduler.score_log import ScoreLog

CANDIDATES_PER_BEAM = 2  # of each so many times the width: one beam alone may have to give all that live on


@dataclass(slots=True)
class Beam:
    """What a choice is in its request's search, beside its tokens. One that is not live has none."""

    is_live: bool = False
    rank: int = 0  # among the live ones, the best first
    score: float = 0.0
    candidates: tuple[Candidate, ...] = ()  # what may follow, from its worker's report until all others have theirs

    @property
    def is_growing(self) -> bool:
        """Its candidates are to be computed."""
        return self.is_live and not self.candidates


@dataclass(frozen=True, slots=True)
class Continuation:
    """A live hypothesis, by its rank, and a token after it."""

    score: float
    parent: int
    token_id: int
    is_end: bool
    logprob: float  # of the token alone


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished one; its score is normalised."""

    score: float
    ids: tuple[int, ...]
    reason: str
    logprobs: ScoreLog = field(default_factory=ScoreLog, compare=False)  # of the ids


@dataclass(slots=True)
class Search:
    """Mutable; of one request."""

    width: int
    length_penalty: float
    is_early: bool  # it is over with the first `width` finished ones
    finished: list[Hypothesis] = field(default_factory=list)  # the best first, at most `width`
    epochs: dict[int, int] = field(default_factory=dict)  # that its gateway listens to, by index of the choice

    @classmethod
    def of(cls, params: SamplingParams) -> "Search | None":
        """None where a request asks for no search."""
        if not params.beam_width:
            return None
        return cls(params.beam_width, params.length_penalty, params.early_stopping)

    def finish(self, score: float, ids: tuple[int, ...], reason: str, logprobs: ScoreLog) -> None:
        self.finished.append(Hypothesis(self.normalised(score, len(ids)), ids, reason, logprobs))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[self.width :]

    def is_over(self, best_score: float, tokens: int) -> bool:
        """Whether no live hypothesis is worth another step, the best of them being as good as it is now."""
        if len(self.finished) < self.width:
            return False
        return self.is_early or self.finished[-1].score >= self.normalised(best_score, tokens)

    def normalised(self, score: float, tokens: int) -> float:
        return score / math.pow(tokens, self.length_penalty)


def continuations(parents: Sequence[tuple[float, Iterable[Candidate]]], width: int) -> list[Continuation]:
    """The best continuations in their order, up to the one with which `width` of them live on.

    Args:
        parents: score and candidates of each live hypothesis, by rank.
    """
    ordered = sorted(_all(parents), key=lambda one: (-one.score, one.parent, one.token_id))
    taken, live = [], 0
    for continuation in ordered:
        if live == width:
            break
        taken.append(continuation)
        live += not continuation.is_end
    return taken


def _all(parents: Sequence[tuple[float, Iterable[Candidate]]]) -> Iterator[Continuation]:
    for rank, (score, candidates) in enumerate(parents):
        for one in candidates:
            yield Continuation(score + one.logprob, rank, one.token_id, one.is_end, one.logprob)
