"""Takes from the buckets of keys, which all gateways share through Valkey; while it is away each has its own."""

import asyncio
import time
from collections.abc import Callable

from libs.runtime.quota import Bucket, Quota, QuotaLimits, full, take
from libs.runtime.quota_library import QUOTA_KEY
from libs.runtime.valkey import Valkey

TIMEOUT_S = 0.05
MOST_OWN = 10_000  # buckets kept here; beyond it those not used for longest are full again


class Quotas:
    """Mutable: the local buckets, by key id."""

    def __init__(self, valkey: Valkey, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._valkey, self._clock_s = valkey, clock_s
        self._own: dict[str, Bucket] = {}
        self._giving: set[asyncio.Task[Quota]] = set()

    async def take(
        self, key_id: str, limits: QuotaLimits, requests: int, tokens: int, *, in_any_case: bool = False
    ) -> Quota:
        """One attempt; nothing is taken where there is not enough, unless it is to be in any case."""
        arguments = (limits.requests_per_minute, limits.tokens_per_minute, requests, tokens, int(in_any_case))
        answer = await self._valkey.call(TIMEOUT_S, "FCALL", "hr_take", 1, QUOTA_KEY + key_id, *arguments)
        if answer is not None:
            granted, left_requests, left_tokens = map(int, answer)
            return Quota(limits, bool(granted), left_requests / 1000, left_tokens / 1000)
        now_s = self._clock_s()
        bucket = self._own.pop(key_id, None) or full(limits, now_s)
        self._own[key_id], quota = take(bucket, limits, requests, tokens, now_s, in_any_case=in_any_case)
        if len(self._own) > MOST_OWN:
            del self._own[next(iter(self._own))]
        return quota

    def correct(self, key_id: str, limits: QuotaLimits, tokens: int) -> None:
        """Take so many tokens more, or give back, without waiting."""
        if tokens:
            giving = asyncio.create_task(self.take(key_id, limits, 0, tokens, in_any_case=True))
            self._giving.add(giving)
            giving.add_done_callback(self._giving.discard)
