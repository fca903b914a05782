"""What a key's quota looks like to a client: OpenAI's x-ratelimit headers, and the error of who asks for too much."""

import math
from collections.abc import Iterator

from libs.contracts.errors import HeadraceError
from libs.runtime.quota import Quota


class RateLimited(HeadraceError):
    """Refused because its key has had its share of this minute. `retry_after_s` is when there is enough again."""

    code, retryable = "rate_limit_exceeded", True

    def __init__(self, quota: Quota, requests: int, tokens: int) -> None:
        limits = quota.limits
        shares = [f"{limits.requests_per_minute} requests"] * bool(limits.requests_per_minute)
        shares += [f"{limits.tokens_per_minute} tokens"] * bool(limits.tokens_per_minute)
        super().__init__(f"the key may use {' and '.join(shares)} a minute, and has")
        self.quota = quota
        self.retry_after_s = quota.enough_after_s(requests, tokens)


def quota_headers(quota: Quota) -> Iterator[tuple[bytes, bytes]]:
    """Limit, what is left, and when that is the limit again; none of what has no limit."""
    limits, full_after_s = quota.limits, quota.full_after_s
    for unit, limit, left, after_s in (
        ("requests", limits.requests_per_minute, quota.requests, full_after_s[0]),
        ("tokens", limits.tokens_per_minute, quota.tokens, full_after_s[1]),
    ):
        if limit:
            for name, value in (("limit", limit), ("remaining", max(0, math.floor(left))), ("reset", spelled(after_s))):
                yield f"x-ratelimit-{name}-{unit}".encode(), str(value).encode()


def spelled(seconds: float) -> str:
    """A duration as OpenAI writes it: 120ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest_s = divmod(seconds, 60)
    return f"{int(minutes)}m{math.ceil(rest_s)}s" if minutes else f"{math.ceil(rest_s * 10) / 10:g}s"
