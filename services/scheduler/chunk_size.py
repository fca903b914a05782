"""How many tokens a step with a chunk may have, to take its target time: found by trying, step by step.

No line foretells it: what a token costs depends on how deep in its prompt it is, and on the machine's day.
"""

from dataclasses import dataclass

FIRST_TOKENS = 64  # while nothing is known: a cold worker must not be busy for seconds
MIN_TOKENS = 16  # a prompt moves on even where the decoding rows alone take longer than the target
GROWTH = 2.0
MARGIN = 0.8  # of the streams' target that a step aims at: half of the steps take longer than what they aim at


@dataclass(slots=True)
class ChunkSize:
    """Of one worker and one target."""

    target_s: float
    tokens: float = FIRST_TOKENS

    def report(self, tokens: int, seconds: float) -> None:
        """A step with so many tokens, some of a chunk, took so long."""
        if 2 * tokens < self.tokens and seconds <= self.target_s:
            return  # the short rest of a prompt says nothing about a whole chunk
        fitting = tokens * min(GROWTH, self.target_s / max(seconds, 1e-9))
        self.tokens = max(MIN_TOKENS, fitting)


@dataclass(slots=True)
class ChunkSizes:
    """Of one worker: alone a step may be long; beside streams it is the gap between two of their tokens."""

    alone: ChunkSize
    beside: ChunkSize

    @classmethod
    def aiming_at(cls, *, chunk_target_s: float, itl_target_s: float) -> "ChunkSizes":
        return cls(ChunkSize(chunk_target_s), ChunkSize(min(MARGIN * itl_target_s, chunk_target_s)))

    def of(self, beside: bool) -> ChunkSize:
        return self.beside if beside else self.alone
