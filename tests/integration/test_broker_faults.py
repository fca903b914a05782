"""The broker dies, loses its store, freezes, or cannot be reached: accepted requests finish with the same tokens."""

import asyncio
import signal

import pytest

from tests.integration.pipeline import SOON_S, Answer, Pipeline
from tests.integration.streams import STREAMS, assert_all_same, begin, stall_s, until_begun

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("away_s", [0.0, 2.0], ids=["briefly", "for long"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_streams_outlive_the_broker(running: Pipeline, number: signal.Signals, away_s: float) -> None:
    """Also when it is away for longer than a silent gateway is given: nothing is lost, doubled, or cancelled."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    await asyncio.to_thread(running.nats.stop, number)
    await asyncio.sleep(away_s)
    await asyncio.to_thread(running.nats.start)

    await assert_all_same(streams)
    assert stall_s(seen) < away_s + 3.0


@pytest.mark.parametrize("lost", [False, True], ids=["same store", "empty store"])
async def test_an_idle_pipeline_serves_again_after_the_broker_restarted(running: Pipeline, lost: bool) -> None:
    """What was declared is declared again, and every pull really pulls: a request comes through."""
    await asyncio.to_thread(running.nats.stop)
    if lost:
        running.nats.lose_store()
    await asyncio.to_thread(running.nats.start)
    await running.ready()

    await assert_all_same(begin(running, [Answer()], 5), 5)


@pytest.mark.parametrize("behind", ["tokenizer", "scheduler"])
async def test_what_only_a_lost_store_held_is_queued_again(running: Pipeline, behind: str) -> None:
    """Requests in either queue when the store is lost: the gateway has them still, and each runs once."""
    running.processes[behind].send_signal(signal.SIGSTOP)
    try:
        seen = [Answer() for _ in range(STREAMS)]
        streams = begin(running, seen, 20)
        async with asyncio.timeout(SOON_S):
            while (await running.queued())[behind == "scheduler"] < STREAMS:
                await asyncio.sleep(0.02)
        await asyncio.to_thread(running.nats.stop)
        running.nats.lose_store()
        await asyncio.to_thread(running.nats.start)
    finally:
        running.processes[behind].send_signal(signal.SIGCONT)

    await assert_all_same(streams, 20)


async def test_streams_outlive_a_lost_store(running: Pipeline) -> None:
    """Streams that run need no queue: they go on, and later ones as well."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    await asyncio.to_thread(running.nats.stop)
    running.nats.lose_store()
    await asyncio.to_thread(running.nats.start)

    await assert_all_same(streams)


async def test_a_store_that_is_lost_with_its_scheduler_stops_nobody_for_long(running: Pipeline) -> None:
    """Nobody is left who knows the term: the next one is above it all the same, and gateway and worker obey it."""
    before = (await running.status()).term
    running.end("scheduler")
    await asyncio.to_thread(running.nats.stop)
    running.nats.lose_store()
    await asyncio.to_thread(running.nats.start)
    running.start("scheduler")
    await running.ready()

    await assert_all_same(begin(running, [Answer()], 5), 5)
    assert (await running.status()).term > before


async def test_a_frozen_broker_refuses_new_requests_soon_and_loses_none(running: Pipeline) -> None:
    """503 with Retry-After within seconds; what runs goes on when it thaws."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen, 300)
    await until_begun(seen)

    running.nats.signal(signal.SIGSTOP)
    try:
        refused = await asyncio.gather(*(running.ask(range(9), 5) for _ in range(4)))
    finally:
        running.nats.signal(signal.SIGCONT)

    for answer in refused:
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert 1 <= int(answer.headers["retry-after"]) <= 120
        assert answer.ended_s - answer.started_s < 6.0
    await assert_all_same(streams, 300)
