"""What is on its way to the host tier, or rests there. Plain values, in blocks of the tier."""

from dataclasses import dataclass

from services.scheduler.prefix import Key


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
    before: tuple[int, ...] = ()  # blocks of the tier that are in the way of the next ones' eviction alone

    @property
    def held(self) -> tuple[int, ...]:
        """All blocks of the tier that are referenced for it."""
        return self.before + self.host_blocks

    def behind(self, index: int) -> "Swapped":
        """What is left to bring back where the table's blocks before `index` are there."""
        there = index - self.first
        return Swapped(index, self.host_blocks[there:], self.tokens, self.before + self.host_blocks[:there])


@dataclass(frozen=True, slots=True)
class Resting:
    """A cached prefix on its way: its blocks, copies that its first ones have, and where the others are copied to."""

    incarnation: str
    version: int
    key: Key
    ids: list[int]
    blocks: tuple[int, ...]
    known: tuple[int, ...]
    host_blocks: tuple[int, ...]
