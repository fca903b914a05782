"""Which blocks of the host tier are whose, and which prefixes rest there. Workers alone write and read them, on orders.

So one that is given up rests like one of the pool until no order can name it: a preempted sequence's worker may copy
into it until it has begun the version that says so, or is gone. Prefixes are found by their tokens, and the least
recently used leaf goes where somebody wants room, as in the pool.
"""

from collections.abc import Sequence

from services.scheduler.block_pool import Named
from services.scheduler.cached_blocks import CachedBlocks
from services.scheduler.eviction import Bounds
from services.scheduler.prefix import NO_BLOCK, Key


class HostTier(CachedBlocks):
    """Owns the blocks 0 … total − 1; none where there is no tier."""

    def __init__(self, total_blocks: int, block_tokens: int) -> None:
        super().__init__(total_blocks, block_tokens, Bounds(0, total_blocks, total_blocks))

    @property
    def held_blocks(self) -> int:
        return self.pool.held_blocks

    @property
    def available_blocks(self) -> int:
        return self.pool.free_blocks + len(self.shelves)

    def take(self, count: int) -> tuple[int, ...] | None:
        """`count` blocks, at the cost of prefixes; None where there are not so many, or some must wait for a worker."""
        if count > self.available_blocks or not self.make_room(count):
            return None
        return tuple(self.pool.take(count))

    def keep(self, key: Key, before: Sequence[int], ids: list[int], host_blocks: Sequence[int]) -> None:
        """`host_blocks` hold `ids`, behind the blocks `before` of the same prefix: they may be found from now on."""
        after = before[-1] if before else NO_BLOCK
        self.tree.insert(key, after, len(before), ids, host_blocks, owner=0)

    def give_back_all(self, host_blocks: Sequence[int], named: Named) -> None:
        """One user less; workers `named` may still write to them. Prefixes stay, and are evicted deepest first."""
        for block in reversed(host_blocks):
            self.give_back(block, named)
