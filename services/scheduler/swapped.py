"""What of a choice is on its way to the host tier, or rests there. Plain values, in blocks of the tier."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SwapOut:
    """Under way: the last blocks of its table, pair by pair. Its worker copies what is committed when it leaves."""

    host_blocks: tuple[int, ...]
    copied: int | None = None  # blocks, once that is reported


@dataclass(frozen=True, slots=True)
class Swapped:
    """Its committed blocks from index `first` of its table on, until an order has brought them back."""

    first: int
    host_blocks: tuple[int, ...]
    tokens: int  # of the choice that are committed with them
