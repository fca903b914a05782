"""The cell's KV memory: its blocks and the prefixes in them. Every change of a block's state goes through here.

It knows no choices: what each of them holds is tables.py's, what it keeps between two workers keeping.py's.
"""

from collections.abc import Iterable, Sequence

from libs.contracts.kv_layout import blocks_for
from services.scheduler.cached_blocks import CachedBlocks
from services.scheduler.eviction import ANYONE, Bounds, Caching
from services.scheduler.host_tier import HostTier
from services.scheduler.prefix import Hit


class Memory(CachedBlocks):
    def __init__(self, total_blocks: int, block_tokens: int, caching: Caching, host_blocks: int = 0) -> None:
        super().__init__(total_blocks, block_tokens, Bounds.of(caching, total_blocks))
        self.block_tokens = block_tokens
        self.caching = caching
        self.tier = HostTier(host_blocks, block_tokens)
        self.copied: set[int] = set()  # cached blocks that rest in the tier as well
        self.index_changes: dict[bytes, bool] = {}  # block hash → stored (True) or evicted; the last change counts
        self._hashes: dict[int, bytes] = {}  # block → what the Redis index knows it by

    @property
    def total_tokens(self) -> int:
        return self.pool.total_blocks * self.block_tokens

    def available_blocks(self, wanting: str | None = ANYONE) -> int:
        """Free, or free once evicted, for this tenant."""
        return self.pool.free_blocks + self.shelves.evictable(wanting)

    def blocks_for(self, tokens: int) -> int:
        return blocks_for(tokens, self.block_tokens)

    def idle_blocks(self, hit: Hit) -> int:
        """How many available blocks sharing this hit would use up."""
        return sum(block in self.shelves for block in shared(hit))

    def attach(self, incarnation: str, version: int) -> None:
        """Know a worker that has begun `version`."""
        self.pool.attach(incarnation, version)
        self.tier.pool.attach(incarnation, version)

    def begin(self, incarnation: str, version: int) -> None:
        """It has begun `version`: what waited for that moves on."""
        self.pool.begin(incarnation, version)
        self.tier.pool.begin(incarnation, version)

    def forget(self, incarnation: str) -> None:
        """Its process no longer exists."""
        self.pool.forget(incarnation)
        self.tier.pool.forget(incarnation)

    def share(self, hit: Hit) -> None:
        """One user more of all that was found."""
        self.reference(shared(hit))

    def unshare(self, hit: Hit) -> None:
        """Deepest first, so that leaves are evicted before what they stand on."""
        for block in reversed(shared(hit)):
            self.give_back(block, {})

    def stored(self, blocks: Iterable[int], hashes: Sequence[bytes]) -> None:
        """Their content may be found from now on; those beyond the hashes are not in the index."""
        for block, index_hash in zip(blocks, hashes, strict=False):
            self._hashes[block] = index_hash
            self.index_changes[index_hash] = True

    def take_index_changes(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """(stored, evicted) since the last call."""
        changes, self.index_changes = self.index_changes, {}
        stored = tuple(block for block, is_stored in changes.items() if is_stored)
        return stored, tuple(block for block, is_stored in changes.items() if not is_stored)

    def _evict(self, block: int) -> None:
        super()._evict(block)
        self.copied.discard(block)
        index_hash = self._hashes.pop(block, None)
        if index_hash is not None:
            self.index_changes[index_hash] = False


def shared(hit: Hit) -> tuple[int, ...]:
    """All blocks that a hit references, from the root down."""
    return hit.blocks if hit.tail is None else (*hit.blocks, hit.tail.block)
