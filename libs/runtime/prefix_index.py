"""The one door to Redis or Valkey: which cell holds how much of a prompt's prefix.

The index is a hint. It may be stale, slow or gone, and then a lookup knows nothing; correctness never depends on it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from libs.contracts.errors import Unavailable
from libs.runtime.logs import get_logger
from libs.runtime.prefix_library import LIBRARY

LOOKUP_TIMEOUT_S = 0.05
APPLY_TIMEOUT_S = 1.0
BATCH_BLOCKS = 512  # per call: the server runs nothing else meanwhile
BREAKER_FAILURES = 3
BREAKER_OPEN_S = 1.0
BLOCK_KEY = "hr:p:"
TERM_KEY = "hr:t:"

log = get_logger("prefix_index")


async def load_library(url: str, *, user: str, password: str) -> None:
    """Load the function library as a user that may. Raises Unavailable."""
    client = _client(url, user, password, timeout_s=APPLY_TIMEOUT_S)
    try:
        await _execute(client, "FUNCTION", "LOAD", "REPLACE", LIBRARY)
    except (RedisError, OSError) as error:
        raise Unavailable(f"cannot load the function library: {error}") from error
    finally:
        await client.aclose()


class PrefixIndex:
    """Lookups for tokenizers and updates for schedulers. `counts` tells failures by name."""

    def __init__(self, client: Redis | None) -> None:
        self._client = client
        self._failures = 0
        self._closed_until_s = 0.0
        self.counts: Counter[str] = Counter()

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, *, user: str, password: str) -> AsyncIterator["PrefixIndex"]:
        """Use the index at redis://host:port or unix:///path; it is dialled when first needed. "" is no index."""
        client = _client(url, user, password, timeout_s=APPLY_TIMEOUT_S) if url else None
        try:
            yield cls(client)
        finally:
            if client is not None:
                await client.aclose()

    async def lookup(self, hashes: Sequence[bytes]) -> dict[str, int]:
        """Cell → blocks of the longest known prefix of `hashes`, cells without any left out.

        One round trip. Any failure, or more than 50 ms, is {} and counted; after a few in a row nothing is asked for a
        second.
        """
        keys = [BLOCK_KEY + block.hex() for block in hashes]
        answer = await self._call(LOOKUP_TIMEOUT_S, "FCALL_RO", "hr_lookup", len(keys), *keys) if keys else None
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
            if await self._call(APPLY_TIMEOUT_S, "FCALL", "hr_apply", len(keys), *keys, cell, term, count) is None:
                return

    async def _call(self, timeout_s: float, *command: Any) -> Any:
        """The answer, or None when there is none."""
        if self._client is None or time.monotonic() < self._closed_until_s:
            self.counts["skipped"] += 1
            return None
        try:
            async with asyncio.timeout(timeout_s):
                answer = await _execute(self._client, *command)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            self._failed(error)
            return None
        self._failures = 0
        return answer

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self.counts["failed"] += 1
        if self._failures >= BREAKER_FAILURES:
            self._closed_until_s = time.monotonic() + BREAKER_OPEN_S
            log.warning("prefix_index_away", reason=str(error) or type(error).__name__)


def _client(url: str, user: str, password: str, *, timeout_s: float) -> Redis:
    return Redis.from_url(
        url,
        username=user or None,
        password=password or None,
        protocol=2,  # RESP3's greeting needs commands that our users may not run
        driver_info=None,  # as does telling the server our library's name
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        max_connections=16,
    )


async def _execute(client: Redis, *command: Any) -> Any:
    return await client.execute_command(*command)  # type: ignore[no-untyped-call]
