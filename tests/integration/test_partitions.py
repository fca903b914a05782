"""Connections that are silent, slow, or break: streams finish with the same tokens."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fakes.proxy import Proxy
from tests.integration.pipeline import SOON_S, Answer, Pipeline
from tests.integration.streams import STREAMS, assert_all_same, begin, until_begun

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

BRIEF_S, LONG_S = 0.5, 2.0
SERVICES = ("gateway", "tokenizer", "scheduler", "decode_worker")
WAYS = ("up", "down", "both")


@contextmanager
def silent(connection: Proxy, way: str) -> Iterator[None]:
    if way != "down":
        connection.up.silence()
    if way != "up":
        connection.down.silence()
    try:
        yield
    finally:
        connection.heal()


async def steady_again(running: Pipeline) -> None:
    """Within ten seconds a new request is served."""
    await asyncio.wait_for(assert_all_same(begin(running, [Answer()], 5), 5), 10)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("service", ["tokenizer", "scheduler", "decode_worker"])
async def test_a_service_without_the_broker_is_made_up_for(running: Pipeline, service: str, way: str) -> None:
    """Streams under way and new ones: frames are asked for again, words repeated, gateways not given up."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    with silent(running.to_nats[service], way):
        late = begin(running, [Answer()], 20)
        await asyncio.sleep(LONG_S)

    await assert_all_same(streams)
    await assert_all_same(late, 20)
    await steady_again(running)


@pytest.mark.parametrize("way", WAYS)
async def test_a_gateway_that_the_broker_loses_for_a_moment_loses_nothing(running: Pipeline, way: str) -> None:
    """Less than a second of silence is no death."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    with silent(running.to_nats["gateway"], way):
        await asyncio.sleep(BRIEF_S)

    await assert_all_same(streams)


async def test_a_gateway_that_only_cannot_hear_catches_up(running: Pipeline) -> None:
    """Its beat is heard, so its requests go on; their tokens wait."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    with silent(running.to_nats["gateway"], "down"):
        await asyncio.sleep(LONG_S)

    await assert_all_same(streams)


@pytest.mark.parametrize("way", ["up", "both"])
async def test_a_gateway_that_is_not_heard_for_long_gives_its_clients_an_error(running: Pipeline, way: str) -> None:
    """Its requests were cancelled: each stream has the right beginning and ends with an error, none hangs."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen, 400)
    await until_begun(seen)

    with silent(running.to_nats["gateway"], way):
        await asyncio.sleep(LONG_S)
        async with asyncio.timeout(SOON_S):
            while (await running.status()).running:
                await asyncio.sleep(0.05)

    for answer in await asyncio.wait_for(asyncio.gather(*streams), SOON_S):
        assert (answer.status, answer.finish, answer.error["code"]) == (200, "", "unavailable")
    await steady_again(running)


@pytest.mark.parametrize("way", WAYS)
async def test_a_worker_without_its_scheduler_is_replaced(running: Pipeline, way: str) -> None:
    """Its sequences go on elsewhere; it is ended, and what it still sends counts for nothing."""
    other = running.start_worker(step_s=0.02, link_via="")
    await running.ready(workers=2)
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    with silent(running.to_scheduler, way):
        await assert_all_same(streams)
        async with asyncio.timeout(SOON_S):
            while not running.killed:
                await asyncio.sleep(0.05)

    assert running.killed != [other]
    running.killed.clear()
    running.end_worker(other)
    await running.ready()
    await steady_again(running)


@pytest.mark.parametrize("service", SERVICES)
async def test_a_connection_to_the_broker_that_breaks_is_made_again(running: Pipeline, service: str) -> None:
    """Reset, or cut in the middle of a message."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    running.to_nats[service].reset()
    await until_begun(seen, 40)
    running.to_nats[service].up.cut_after_bytes = 333

    await assert_all_same(streams)


async def test_a_link_that_breaks_is_made_again(running: Pipeline) -> None:
    """Within a second nobody is given up for it."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    running.to_scheduler.reset()

    await assert_all_same(streams)
    assert running.killed == []


async def test_a_slow_lossy_and_jittery_network_only_takes_longer(running: Pipeline) -> None:
    """200 ms each way to the broker, in small pieces, of which one in a hundred is lost and sent again."""
    for connection in running.to_nats.values():
        for way in (connection.up, connection.down):
            way.latency_s, way.jitter_s, way.slice_bytes, way.loss = 0.2, 0.05, 50, 0.01

    await assert_all_same(begin(running, [Answer() for _ in range(STREAMS)], 40), 40)
