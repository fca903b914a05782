"""Blocks that are used, cached or free: a pool, the prefixes in it, and in which order its cached blocks may go."""

from collections.abc import Iterable

from services.scheduler.block_pool import BlockPool, Named
from services.scheduler.eviction import ANYONE, Bounds, Shelves
from services.scheduler.prefix import PrefixTree


class CachedBlocks:
    """What the pool of a cell and its host tier have in common."""

    def __init__(self, total_blocks: int, block_tokens: int, bounds: Bounds) -> None:
        self.pool = BlockPool(total_blocks)
        self.tree = PrefixTree(block_tokens)
        self.shelves = Shelves(bounds)

    def reference(self, blocks: Iterable[int]) -> None:
        """One user more of blocks that hold a prefix."""
        for block in blocks:
            self.pool.reference(block)
            self.shelves.wake(block)

    def give_back(self, block: int, named: Named) -> None:
        """One user of a block less; the last leaves it to the cache if its content is known."""
        if not self.pool.dereference(block, named):
            return
        run = self.tree.runs.get(block)
        if run is None:
            self.pool.discard(block)
        else:
            self.shelves.rest(run.key.tenant, block)
            self.pool.cache(block)

    def make_room(self, blocks: int, wanting: str | None = ANYONE) -> bool:
        """Evict until `blocks` are free. False when they are not yet: some may have to wait for a worker first."""
        while (missing := blocks - self.pool.free_blocks) > 0:
            lot = self.shelves.next_lot(wanting, missing)
            if not lot:
                return False
            for block in lot:
                self._evict(block)
        return True

    def _evict(self, block: int) -> None:
        self.tree.evict(block)
        self.shelves.wake(block)
        self.pool.discard(block)
