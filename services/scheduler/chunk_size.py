"""How many tokens a step with a chunk may have, to take its target time: found by trying, step by step.

No line foretells it: what a token costs depends on how deep in its prompt it is, and on the machine's day.
"""

from dataclasses import dataclass
from enum import Enum
from math import inf

FIRST_TOKENS = 64  # while nothing is known: a cold worker must not be busy for seconds
MIN_TOKENS = 16  # a prompt moves on even where the decoding rows alone take longer than the target
SWIFT_TOKENS = 8  # likewise a flood's
SHORT_PART = 0.3  # of the streams' target: a step of that time is short enough, and so is
LONGER = 1.5  # times the quickest one
GROWTH = 2.0
MARGIN = 0.62  # of the streams' target that a step aims at: half of the steps take longer than what they aim at


class Pace(Enum):
    """What a step with a chunk aims at."""

    ALONE = "alone"
    BESIDE = "beside"  # rows decode in it
    SWIFT = "swift"  # one tenant floods, and others wait for the end of each step


@dataclass(slots=True)
class ChunkSize:
    """Of one worker and one target. A step that took too long never lets it grow, however many tokens it had."""

    target_s: float
    tokens: float = FIRST_TOKENS
    least: int = MIN_TOKENS

    def report(self, tokens: int, seconds: float) -> None:
        """A step with so many tokens, some of a chunk, took so long."""
        if 2 * tokens < self.tokens and seconds <= self.target_s:
            return  # the short rest of a prompt says nothing about a whole chunk
        fitting = tokens * min(GROWTH, self.target_s / max(seconds, 1e-9))
        self.tokens = max(self.least, fitting if seconds <= self.target_s else min(fitting, self.tokens))


class ChunkSizes:
    """By pace: alone a step may be long; beside streams it is the gap between two of their tokens."""

    def __init__(self, *, chunk_target_s: float, itl_target_s: float) -> None:
        self._sizes = {
            Pace.ALONE: ChunkSize(chunk_target_s),
            Pace.BESIDE: ChunkSize(min(MARGIN * itl_target_s, chunk_target_s)),
            Pace.SWIFT: ChunkSize(SHORT_PART * itl_target_s, 2 * SWIFT_TOKENS, SWIFT_TOKENS),
        }
        self._short_s, self._quickest_s = SHORT_PART * itl_target_s, inf

    def of(self, pace: Pace) -> ChunkSize:
        return self._sizes[pace]

    def report(self, tokens: int, seconds: float, pace: Pace | None) -> None:
        """A step took so long; `pace` is what its chunk aimed at, None where it had none. All tell of short steps."""
        self._quickest_s = min(self._quickest_s, seconds)
        swift = self.of(Pace.SWIFT)
        swift.target_s = max(self._short_s, LONGER * self._quickest_s)
        swift.report(tokens, seconds)
        if pace is not None and pace is not Pace.SWIFT:
            self.of(pace).report(tokens, seconds)
