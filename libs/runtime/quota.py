"""What a key may ask for within a minute, as two buckets that fill evenly: pure arithmetic, the same as the Lua's."""

from dataclasses import dataclass, replace

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Of one key; 0 is no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0

    @property
    def are_any(self) -> bool:
        return bool(self.requests_per_minute or self.tokens_per_minute)


NO_LIMITS = QuotaLimits()


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left at a time; below zero where more was used than was taken beforehand."""

    requests: float
    tokens: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Quota:
    """What became of an attempt to take, and what is left."""

    limits: QuotaLimits
    is_granted: bool
    requests: float
    tokens: float

    @property
    def full_after_s(self) -> tuple[float, float]:
        """Seconds until the bucket of requests and that of tokens are full again."""
        limits = self.limits
        return (
            _until_s(limits.requests_per_minute, self.requests, limits.requests_per_minute),
            _until_s(limits.tokens_per_minute, self.tokens, limits.tokens_per_minute),
        )

    def enough_after_s(self, requests: int, tokens: int) -> float:
        """Seconds until so much can be taken."""
        limits = self.limits
        return max(
            _until_s(limits.requests_per_minute, self.requests, requests),
            _until_s(limits.tokens_per_minute, self.tokens, min(tokens, limits.tokens_per_minute)),
        )


def full(limits: QuotaLimits, now_s: float) -> Bucket:
    return Bucket(limits.requests_per_minute, limits.tokens_per_minute, now_s)


def take(
    bucket: Bucket, limits: QuotaLimits, requests: int, tokens: int, now_s: float, *, in_any_case: bool = False
) -> tuple[Bucket, Quota]:
    """The bucket afterwards, and what is left of it.

    Who wants more tokens than a minute has gets them when the bucket is full, and leaves it in debt. A negative number
    gives back.
    """
    elapsed_s = max(0.0, now_s - bucket.at_s)
    most_requests, most_tokens = limits.requests_per_minute, limits.tokens_per_minute
    left = replace(
        bucket,
        requests=min(most_requests, bucket.requests + most_requests / MINUTE_S * elapsed_s),
        tokens=min(most_tokens, bucket.tokens + most_tokens / MINUTE_S * elapsed_s),
        at_s=now_s,
    )
    is_enough = (not most_requests or left.requests >= requests) and (
        not most_tokens or left.tokens >= min(tokens, most_tokens)
    )
    if is_enough or in_any_case:
        left = replace(
            left,
            requests=min(most_requests, left.requests - requests) if most_requests else 0,
            tokens=min(most_tokens, left.tokens - tokens) if most_tokens else 0,
        )
    return left, Quota(limits, is_enough or in_any_case, left.requests, left.tokens)


def _until_s(limit: int, left: float, wanted: float) -> float:
    return max(0.0, (wanted - left) * MINUTE_S / limit) if limit else 0.0
