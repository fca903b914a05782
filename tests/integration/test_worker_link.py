"""A worker on a real broker and a real link: a scripted scheduler orders, a fake engine computes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from libs.contracts.errors import Fenced
from libs.contracts.messages import (
    Ack,
    Began,
    Chunk,
    FencedOff,
    Hello,
    Resync,
    StepResult,
)
from libs.engine.rows import StepRow
from libs.runtime.link import LinkRefused
from tests.fakes.engine import expected
from tests.integration.servers import NatsServer
from tests.integration.worker_stage import PATIENCE_S, Scheduler, Stage, Talk
from tests.unit.worker.orders import PARAMS, Orders, prompt

pytestmark = pytest.mark.integration


@pytest.fixture
async def stage(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(nats_server, tmp_path)
    await stage.open()
    yield stage
    await stage.close()


async def begun(stage: Stage) -> tuple[Scheduler, Talk, Orders]:
    """A worker attached to the leading scheduler, with an empty order taken."""
    scheduler = await stage.scheduler()
    orders = Orders(await scheduler.lead())
    await stage.worker()
    talk = await scheduler.attached()
    hello = await talk.expect(Hello)
    await talk.send(orders.snapshot(version=hello.version + 1))
    await talk.expect(Began)
    return scheduler, talk, orders


async def test_a_request_is_computed_and_streamed(stage: Stage) -> None:
    """Hello, Snapshot, one order; then Began, a result per step to the scheduler, and every token to the gateway."""
    scheduler = await stage.scheduler()
    orders = Orders(await scheduler.lead())
    await stage.worker()
    talk = await scheduler.attached()

    hello = await talk.expect(Hello)
    await talk.send(orders.snapshot(version=1))
    began = await talk.expect(Began)
    await talk.send(orders.delta(added=[stage.guest()], chunks=[Chunk(1, 12)]), orders.delta(chunks=[Chunk(1, 12)]))
    told = [await talk.expect(Began), *await talk.results(1), await talk.expect(Began), *await talk.results(8)]
    rows = await stage.rows(8)

    ids, end = expected(prompt(20), PARAMS)
    assert (hello.term, hello.version, hello.role, hello.pool_blocks, hello.residents) == (0, 0, "decode", 64, ())
    assert began == Began(hello.incarnation, orders.term, 1)
    assert [m.version for m in told if isinstance(m, Began | StepResult)] == [2, 2, 3, *[3] * 8]
    assert tuple(token for m in told if isinstance(m, StepResult) for row in m.rows for token in row.ids) == ids
    assert ([row.position for row in rows], rows[-1].end) == (list(range(8)), end)
    assert tuple(token for row in rows for token in row.ids) == ids


async def test_a_lost_link_stops_nobody_and_loses_nothing(stage: Stage) -> None:
    """Tokens flow while no scheduler is there; after Hello everything unacknowledged is sent again, and only that."""
    scheduler, talk, orders = await begun(stage)
    await talk.send(orders.delta(added=[stage.guest()], chunks=[Chunk(1, 20)]))
    await talk.expect(Began)
    results = await talk.results(8)
    await talk.send(Ack(orders.term, 3))
    await talk.send(orders.delta())
    await talk.expect(Began)  # the Ack came before it

    talk.hang_up.set()
    again = await scheduler.attached()

    hello = await again.expect(Hello)
    assert (hello.version, hello.step_number, hello.incarnation) == (3, 8, results[0].incarnation)
    assert [held.cursor for held in hello.residents] == [27]
    assert await again.results(5) == results[3:]
    assert len(await stage.rows(8)) == 8


async def test_a_worker_steps_on_without_a_scheduler(stage: Stage) -> None:
    """A step in flight when the link goes is followed by the next ones; its gateway sees no gap."""
    scheduler, talk, orders = await begun(stage)
    loop, inside, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hold(rows: Sequence[StepRow]) -> None:
        loop.call_soon_threadsafe(inside.set)
        assert go_on.wait(PATIENCE_S)

    stage.engine.before_step = hold
    await talk.send(orders.delta(added=[stage.guest()], chunks=[Chunk(1, 20)]))
    await inside.wait()
    talk.hang_up.set()
    await talk.is_over.wait()
    stage.engine.before_step = lambda rows: None
    go_on.set()

    rows = await stage.rows(8)
    again = await scheduler.attached()
    hello = await again.expect(Hello)

    assert tuple(token for row in rows for token in row.ids) == expected(prompt(20), PARAMS)[0]
    assert hello.term == orders.term
    assert [result.step_number for result in await again.results(8)] == list(range(1, 9))


async def test_a_refusal_ends_the_worker_with_its_reason(stage: Stage) -> None:
    """Another layout, model or numerics class will not fit better by trying again."""
    scheduler = await stage.scheduler()
    await scheduler.lead()
    await stage.worker()
    talk = await scheduler.attached()
    await talk.expect(Hello)

    talk.refuse("the layout differs")

    with pytest.raises(LinkRefused, match="the layout differs"):
        await stage.running


async def test_a_wrong_token_ends_the_worker(stage: Stage) -> None:
    """The link is not open to everybody on the network."""
    scheduler = await stage.scheduler()
    await scheduler.lead()
    await stage.worker(token="guessed")

    with pytest.raises(LinkRefused):
        await stage.running


async def test_a_fenced_worker_exits(stage: Stage) -> None:
    """Somebody else may own its blocks by now."""
    _, talk, orders = await begun(stage)

    await talk.send(FencedOff(orders.term, "replaced"))

    with pytest.raises(Fenced, match="replaced"):
        await stage.running


async def test_what_a_lower_term_says_is_dropped(stage: Stage) -> None:
    """Orders, acknowledgements and fencing alike: the thread of the old term's thaw must not be heard.

    Nor is what is meant for another life.
    """
    _, talk, orders = await begun(stage)
    new, old = Orders(orders.term + 2), Orders(orders.term + 1)

    await talk.send(new.snapshot(version=2), FencedOff(old.term, "stale"), Ack(old.term, 99), old.snapshot(version=3))
    await talk.send(FencedOff(new.term, "the life before", incarnation="f" * 32), new.delta())

    assert [(await talk.expect(Began)).version for _ in range(2)] == [2, 3]
    assert stage.link.dropped == 4


async def test_a_newer_term_takes_the_worker_over(stage: Stage) -> None:
    """The old scheduler may hang with an open link: the directory tells who leads."""
    _, old, orders = await begun(stage)
    successor = await stage.scheduler()
    term = await successor.lead()

    talk = await successor.attached()
    hello = await talk.expect(Hello)
    await talk.send(Orders(term).snapshot(version=hello.version + 1))

    assert (hello.term, hello.version) == (orders.term, 1)
    assert (await talk.expect(Began)).term == term > orders.term
    await old.is_over.wait()


async def test_a_wrong_hash_is_answered_by_resync_and_a_snapshot_heals(stage: Stage) -> None:
    """The worker says which version was right; the whole order comes, and the stream goes on."""
    _, talk, orders = await begun(stage)
    guest = stage.guest()
    await talk.send(replace(orders.delta(added=[guest]), order_hash=b"wrong"))

    resync = await talk.expect(Resync)
    await talk.send(orders.snapshot(guest), orders.delta(chunks=[Chunk(1, 20)]))

    assert (resync.term, resync.version) == (orders.term, 1)
    assert [(await talk.expect(Began)).version for _ in range(2)] == [3, 4]
    assert len(await stage.rows(8)) == 8


async def test_an_order_outside_the_pool_is_not_carried_out(stage: Stage) -> None:
    """It is dropped like a lost one; the next version shows the gap."""
    _, talk, orders = await begun(stage)

    await talk.send(orders.delta(added=[replace(stage.guest(), block_table=(64,))]), orders.delta())

    assert (await talk.expect(Resync)).version == 1
    assert stage.link.dropped == 1


async def test_a_stop_finishes_the_step_and_sends_its_result(stage: Stage) -> None:
    """What was computed is told before the process ends."""
    _, talk, orders = await begun(stage)
    loop = asyncio.get_running_loop()
    stage.engine.before_step = lambda rows: loop.call_soon_threadsafe(stage.stop.set)

    await talk.send(orders.delta(added=[stage.guest()], chunks=[Chunk(1, 20)]))
    await stage.running

    await talk.expect(Began)
    assert (await talk.expect(StepResult)).step_number == 1
    assert len(await stage.rows(1)) == 1


async def test_two_workers_hand_over_in_the_same_blocks(stage: Stage) -> None:
    """The first stops at until = 1, the second goes on with its token: together they are one stream."""
    scheduler, first, orders = await begun(stage)
    await stage.worker()
    second = await scheduler.attached()
    seconds_orders = Orders(orders.term)
    hello = await second.expect(Hello)
    await second.send(seconds_orders.snapshot(version=hello.version + 1))
    await second.expect(Began)

    await first.send(orders.delta(added=[stage.guest(until=1)], chunks=[Chunk(1, 20)]))
    await first.expect(Began)
    (result,) = await first.results(1)
    token = result.rows[0].ids[0]
    handed = replace(stage.guest(7), request_id="r1", ids=(*prompt(20), token), cursor=20)
    await second.send(seconds_orders.delta(added=[handed]))
    rows = sorted(await stage.rows(8), key=lambda row: row.position)  # of two connections, whose order is open

    assert result.rows[0].at_until
    assert {row.request_id for row in rows} == {"r1"}
    assert tuple(token for row in rows for token in row.ids) == expected(prompt(20), PARAMS)[0]
