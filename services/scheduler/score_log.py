"""How likely the ids of a sequence were, one after the other, and the likeliest ids in the place of each. Pure."""

from array import array
from typing import NamedTuple


class Scores(NamedTuple):
    """Of ids in a row; equally many tops for each."""

    logprobs: tuple[float, ...] = ()
    ranks: tuple[int, ...] = ()  # empty where they were not told
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


class ScoreLog:
    """Grows at its end. Four columns of numbers, so that the scores of a long prompt take little memory."""

    __slots__ = ("logprobs", "ranks", "top_ids", "top_logprobs")

    def __init__(self) -> None:
        self.logprobs, self.ranks = array("f"), array("I")
        self.top_ids, self.top_logprobs = array("I"), array("f")

    def __len__(self) -> int:
        return len(self.logprobs)

    @property
    def tops(self) -> int:
        """The likeliest that are told of each id."""
        return len(self.top_ids) // len(self) if len(self) else 0

    def extend(self, scores: Scores, *, skip: int = 0) -> None:
        """Take in what comes next, but for the first `skip` ids of it."""
        tops = len(scores.top_ids) // max(1, len(scores.logprobs))
        self.logprobs.extend(scores.logprobs[skip:])
        self.ranks.extend(scores.ranks[skip:])
        self.top_ids.extend(scores.top_ids[skip * tops :])
        self.top_logprobs.extend(scores.top_logprobs[skip * tops :])

    def cut(self, count: int) -> None:
        """Keep the first `count` ids."""
        tops = self.tops
        del self.logprobs[count:], self.ranks[count:]
        del self.top_ids[count * tops :], self.top_logprobs[count * tops :]

    def read(self, first: int, count: int) -> Scores:
        """At most `count` ids from the one at `first` on."""
        ids, tops = slice(first, first + count), slice(first * self.tops, (first + count) * self.tops)
        return Scores(
            tuple(self.logprobs[ids]), tuple(self.ranks[ids]), tuple(self.top_ids[tops]), tuple(self.top_logprobs[tops])
        )

    def followed_by(self, logprob: float) -> "ScoreLog":
        """A copy with one more id."""
        grown = ScoreLog()
        grown.extend(self.read(0, len(self)))
        grown.extend(Scores((logprob,)))
        return grown
