"""What a key may still ask for: the two buckets, and what is kept of them while Valkey is away."""

import pytest

from libs.runtime.quota import QuotaLimits, full, take
from libs.runtime.quotas import MOST_OWN, Quotas
from libs.runtime.valkey import Valkey

LIMITS = QuotaLimits(requests_per_minute=6, tokens_per_minute=600)


def test_a_bucket_empties_and_fills_evenly() -> None:
    """A minute's requests at once, then one every ten seconds."""
    bucket = full(LIMITS, 0)
    for _ in range(6):
        bucket, quota = take(bucket, LIMITS, 1, 0, 0)
        assert quota.is_granted
    bucket, quota = take(bucket, LIMITS, 1, 0, 0)
    assert not quota.is_granted and quota.enough_after_s(1, 0) == 10 and quota.full_after_s == (60, 0)

    bucket, quota = take(bucket, LIMITS, 1, 0, 9.9)
    assert not quota.is_granted
    _, quota = take(bucket, LIMITS, 1, 0, 10.1)
    assert quota.is_granted


def test_nothing_is_taken_of_either_where_there_is_not_enough_of_both() -> None:
    """Who lacks tokens keeps its request."""
    bucket, _ = take(full(LIMITS, 0), LIMITS, 1, 600, 0)
    bucket, quota = take(bucket, LIMITS, 1, 100, 0)

    assert not quota.is_granted and quota.requests == 5 and quota.enough_after_s(1, 100) == 10


def test_a_prompt_larger_than_a_minute_waits_for_a_full_bucket_and_leaves_a_debt() -> None:
    """It is served once, and who comes next waits longer."""
    bucket, quota = take(full(LIMITS, 0), LIMITS, 1, 900, 0)
    assert quota.is_granted and quota.tokens == -300
    _, quota = take(bucket, LIMITS, 1, 100, 0)
    assert not quota.is_granted and quota.enough_after_s(1, 100) == 40


def test_what_was_taken_too_much_comes_back_but_never_beyond_the_limit() -> None:
    """Corrections are made in any case, up and down."""
    bucket, _ = take(full(LIMITS, 0), LIMITS, 1, 100, 0)
    bucket, quota = take(bucket, LIMITS, 0, 700, 0, in_any_case=True)
    assert quota.is_granted and quota.tokens == -200
    _, quota = take(bucket, LIMITS, 0, -5000, 0, in_any_case=True)
    assert quota.tokens == 600 and quota.requests == 5


@pytest.mark.parametrize("limits", [QuotaLimits(), QuotaLimits(tokens_per_minute=10), QuotaLimits(3)])
def test_what_has_no_limit_is_never_used_up(limits: QuotaLimits) -> None:
    """0 is no limit, of requests as of tokens."""
    requests = 0 if limits.requests_per_minute else 100
    tokens = 0 if limits.tokens_per_minute else 100_000
    _, quota = take(full(limits, 0), limits, requests, tokens, 0)
    assert quota.is_granted


async def test_a_gateway_alone_counts_by_itself() -> None:
    """Each key by its own, and no more of them than is said."""
    now_s = [0.0]
    quotas = Quotas(Valkey(None), clock_s=lambda: now_s[0])
    granted = [(await quotas.take("k-1", LIMITS, 1, 0)).is_granted for _ in range(7)]
    assert granted == [True] * 6 + [False]
    assert (await quotas.take("k-2", LIMITS, 1, 0)).is_granted

    for index in range(MOST_OWN):
        await quotas.take(f"k-other-{index}", LIMITS, 1, 0)
    assert (await quotas.take("k-1", LIMITS, 6, 0)).is_granted
