"""The one door to Redis or Valkey: one command at a time, within its limit, and none while the server is away.

Whatever is kept there is a hint or a convenience: it may be stale, slow or gone, and nobody's answer depends on it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from libs.contracts.errors import Unavailable
from libs.runtime.logs import get_logger

SOCKET_TIMEOUT_S = 1.0
BREAKER_FAILURES = 3
BREAKER_OPEN_S = 1.0

log = get_logger("valkey")


class Valkey:
    """Calls with a circuit breaker. `counts` tells failures by name; no client is no server."""

    def __init__(self, client: Redis | None) -> None:
        self._client = client
        self._failures = 0
        self._closed_until_s = 0.0
        self.counts: Counter[str] = Counter()

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, *, user: str, password: str) -> AsyncIterator["Valkey"]:
        """Use the server at redis://host:port or unix:///path; it is dialled when first needed. "" is none."""
        client = _client(url, user, password) if url else None
        try:
            yield cls(client)
        finally:
            if client is not None:
                await client.aclose()

    async def call(self, timeout_s: float, *command: Any) -> Any:
        """The answer, or None when there is none in time; after a few in a row nothing is asked for a second."""
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
            log.warning("valkey_away", reason=str(error) or type(error).__name__)


async def load_libraries(url: str, *libraries: str, user: str, password: str) -> None:
    """Load function libraries as a user that may. Raises Unavailable."""
    client = _client(url, user, password)
    try:
        for library in libraries:
            await _execute(client, "FUNCTION", "LOAD", "REPLACE", library)
    except (RedisError, OSError) as error:
        raise Unavailable(f"cannot load the function library: {error}") from error
    finally:
        await client.aclose()


def _client(url: str, user: str, password: str) -> Redis:
    return Redis.from_url(
        url,
        username=user or None,
        password=password or None,
        protocol=2,  # RESP3's greeting needs commands that our users may not run
        driver_info=None,  # as does telling the server our library's name
        retry=Retry(NoBackoff(), 0),
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        max_connections=16,
    )


async def _execute(client: Redis, *command: Any) -> Any:
    return await client.execute_command(*command)  # type: ignore[no-untyped-call]
