"""Which cell holds how much of a prompt's prefix, as far as anybody has told: kept in Redis or Valkey.

The index is a hint. It may be stale, slow or gone, and then a lookup knows nothing; correctness never depends on it.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from libs.runtime.valkey import Valkey

LOOKUP_TIMEOUT_S = 0.05
APPLY_TIMEOUT_S = 1.0
BATCH_BLOCKS = 512  # per call: the server runs nothing else meanwhile
BLOCK_KEY = "hr:p:"
TERM_KEY = "hr:t:"


class PrefixIndex:
    """Lookups for tokenizers and updates for schedulers. `counts` tells failures by name."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self.counts = valkey.counts

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, *, user: str, password: str) -> AsyncIterator["PrefixIndex"]:
        """Use the index at redis://host:port or unix:///path; it is dialled when first needed. "" is no index."""
        async with Valkey.connect(url, user=user, password=password) as valkey:
            yield cls(valkey)

    async def lookup(self, hashes: Sequence[bytes]) -> dict[str, int]:
        """Cell → blocks of the longest known prefix of `hashes`, cells without any left out.

        One round trip. Any failure, or more than 50 ms, is {} and counted; after a few in a row nothing is asked for a
        second.
        """
        keys = [BLOCK_KEY + block.hex() for block in hashes]
        answer = await self._valkey.call(LOOKUP_TIMEOUT_S, "FCALL_RO", "hr_lookup", len(keys), *keys) if keys else None
        if not answer:
            return {}
        return {cell.decode(): int(blocks) for cell, blocks in zip(answer[::2], answer[1::2], strict=True)}

    async def apply(self, cell: str, term: int, stored: Sequence[bytes], evicted: Sequence[bytes]) -> None:
        """Tell what the cell's pools hold now and hold no more; best effort. A stale term changes nothing."""
        changes = [(block, True) for block in stored] + [(block, False) for block in evicted]
        for start in range(0, len(changes), BATCH_BLOCKS):
            batch = changes[start : start + BATCH_BLOCKS]
            keys = [TERM_KEY + cell, *(BLOCK_KEY + block.hex() for block, _ in batch)]
            count = sum(kept for _, kept in batch)
            told = await self._valkey.call(APPLY_TIMEOUT_S, "FCALL", "hr_apply", len(keys), *keys, cell, term, count)
            if told is None:
                return
