"""The end of a lost worker's attempt. A plain value, of a choice that waits to go on from there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tail:
    """The first `tokens` tokens of a block are committed; it is referenced until they are copied, and never written."""

    block: int
    tokens: int
