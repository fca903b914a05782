"""Quotas in a real Valkey: the Lua function counts as the Python does, and two gateways share what they take."""

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from libs.runtime.quota import QuotaLimits, full, take
from libs.runtime.quotas import Quotas
from libs.runtime.valkey import Valkey
from tests.integration.servers import ValkeyServer

pytestmark = pytest.mark.integration

LIMITS = QuotaLimits(requests_per_minute=4, tokens_per_minute=1000)


async def test_two_gateways_share_a_keys_quota(valkey_server: ValkeyServer) -> None:
    """What one takes the other lacks; what is given back is everybody's."""
    password = valkey_server.passwords["gateway"]
    async with (
        Valkey.connect(valkey_server.url, user="gateway", password=password) as one,
        Valkey.connect(valkey_server.url, user="gateway", password=password) as other,
    ):
        gateways = (Quotas(one), Quotas(other))
        granted = [(await gateways[index % 2].take("k-1", LIMITS, 1, 0)).is_granted for index in range(6)]
        assert granted == [True] * 4 + [False] * 2
        gateways[0].correct("k-1", LIMITS, 1500)
        await asyncio.gather(*gateways[0]._giving)
        left = await gateways[1].take("k-1", LIMITS, 0, 0, in_any_case=True)
        assert -500 <= left.tokens < -400
        assert not one.counts and not other.counts


@pytest.mark.parametrize("limits", [LIMITS, QuotaLimits(0, 50), QuotaLimits(3, 0)])
async def test_the_function_counts_as_the_arithmetic_does(valkey_server: ValkeyServer, limits: QuotaLimits) -> None:
    """The same answers to the same attempts, within what time adds meanwhile."""
    attempts = [(1, 10, False), (1, 2000, False), (0, 30, True), (1, 10, False), (0, -100, True), (5, 0, False)]
    bucket = full(limits, 0)
    async with Valkey.connect(valkey_server.url, user="gateway", password=valkey_server.passwords["gateway"]) as valkey:
        for requests, tokens, in_any_case in attempts:
            bucket, wanted = take(bucket, limits, requests, tokens, 0, in_any_case=in_any_case)
            quota = await Quotas(valkey).take("k-1", limits, requests, tokens, in_any_case=in_any_case)
            assert quota.is_granted == wanted.is_granted
            assert quota.tokens == pytest.approx(wanted.tokens, abs=20)
            assert quota.requests == pytest.approx(wanted.requests, abs=0.1)


@pytest.mark.parametrize(
    "command", ["FLUSHALL", "KEYS *", "GET hr:t:c0", "HGETALL hr:p:00", "CONFIG GET *", "EVAL 1 0"]
)
async def test_a_gateway_may_do_nothing_else(valkey_server: ValkeyServer, command: str) -> None:
    """Its user knows the keys of quotas, and no command beyond those of the function."""
    client = Redis.from_url(
        valkey_server.url, username="gateway", password=valkey_server.passwords["gateway"], protocol=2, driver_info=None
    )
    try:
        with pytest.raises(NoPermissionError):
            await client.execute_command(*command.split())  # type: ignore[no-untyped-call]
    finally:
        await client.aclose()


async def test_without_valkey_a_gateway_goes_on_by_itself(valkey_server: ValkeyServer) -> None:
    """It is asked again once it is back."""
    async with Valkey.connect(valkey_server.url, user="gateway", password=valkey_server.passwords["gateway"]) as valkey:
        quotas = Quotas(valkey)
        assert (await quotas.take("k-1", LIMITS, 1, 0)).requests == pytest.approx(3, abs=0.1)
        valkey_server.stop()
        assert (await quotas.take("k-1", LIMITS, 1, 0)).requests == 3
        assert valkey.counts["failed"] == 1
