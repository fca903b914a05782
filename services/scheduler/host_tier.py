"""Which blocks of the host tier are whose. A block of it is written by a worker alone, on an order, and read likewise.

So one that is given up rests like one of the pool until no order can name it: a preempted sequence's worker may copy
into it until it has begun the version that says so, or is gone.
"""

from collections.abc import Sequence

from services.scheduler.block_pool import BlockPool, Named


class HostTier:
    """Owns the blocks 0 … total − 1; none where there is no tier."""

    def __init__(self, total_blocks: int) -> None:
        self.pool = BlockPool(total_blocks)

    @property
    def held_blocks(self) -> int:
        return self.pool.held_blocks

    def take(self, count: int) -> tuple[int, ...] | None:
        """`count` blocks for a sequence; None where there are not so many."""
        return tuple(self.pool.take(count)) if count <= self.pool.free_blocks else None

    def give_back(self, host_blocks: Sequence[int], named: Named) -> None:
        """Nobody goes on from these; workers `named` may still write to them."""
        for block in host_blocks:
            if self.pool.dereference(block, named):
                self.pool.discard(block)
