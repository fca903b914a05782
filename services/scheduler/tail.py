"""Where an attempt that was taken from its worker ended. A plain value, of a choice that waits to go on from there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tail:
    """A block whose first `tokens` tokens are committed for certain; its fill count may tell of more.

    It is referenced until it is copied, and never written by who goes on.
    """

    block: int
    tokens: int
