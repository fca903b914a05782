"""A worker on a real broker and a real link: a scripted scheduler orders, a fake engine computes."""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import SecretStr

from libs.contracts import codec, flow
from libs.contracts.errors import Fenced
from libs.contracts.messages import (
    Ack,
    Began,
    CellRecord,
    Chunk,
    FencedOff,
    FrameRow,
    Hello,
    Resident,
    Resync,
    SchedulerMessage,
    StepResult,
    TokenFrame,
    WorkerMessage,
)
from libs.engine.rows import StepRow
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.link_client import CellLeader
from libs.engine.worker.serve import Role, Worker
from libs.runtime.bus import Bus
from libs.runtime.link import LinkRefused, LinkSession, serve_link
from tests.fakes.engine import FakeEngine, FakePool, expected, fake_loaded
from tests.integration.servers import NatsServer
from tests.unit.worker.orders import PARAMS, Orders, prompt, resident

pytestmark = pytest.mark.integration

M = TypeVar("M", bound=WorkerMessage)

PATIENCE_S = 10.0
DRAIN_S = 5.0
TOKEN = "link-token"
ROLE = Role("decode_worker", "decode", flow.DECODE)


@dataclass
class Talk:
    """One worker's link as the scheduler sees it."""

    session: LinkSession
    inbox: asyncio.Queue[WorkerMessage] = field(default_factory=asyncio.Queue)
    hang_up: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: str = ""

    async def send(self, *messages: SchedulerMessage) -> None:
        for message in messages:
            await self.session.send(message)

    async def expect(self, kind: type[M]) -> M:
        """The next message, which must be of this kind."""
        async with asyncio.timeout(PATIENCE_S):
            message = await self.inbox.get()
        assert isinstance(message, kind), message
        return message

    async def results(self, number: int) -> list[StepResult]:
        return [await self.expect(StepResult) for _ in range(number)]

    def refuse(self, reason: str) -> None:
        self.refusal = reason
        self.hang_up.set()


class Scheduler:
    """Takes links and leads the cell, as far as a test tells it to."""

    def __init__(self, bus: Bus, record: CellRecord) -> None:
        self._bus, self.record = bus, record
        self._talks: asyncio.Queue[Talk] = asyncio.Queue()

    async def lead(self) -> int:
        return await self._bus.claim_term(self.record)

    async def attached(self) -> Talk:
        async with asyncio.timeout(PATIENCE_S):
            return await self._talks.get()

    async def serve(self, session: LinkSession) -> None:
        talk = Talk(session)
        self._talks.put_nowait(talk)
        reading = asyncio.create_task(self._read(talk))
        hanging_up = asyncio.create_task(talk.hang_up.wait())
        try:
            await asyncio.wait((reading, hanging_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            hanging_up.cancel()
            talk.is_over.set()
        if talk.refusal:
            await session.refuse(talk.refusal)

    async def _read(self, talk: Talk) -> None:
        async for message in talk.session.receive():
            talk.inbox.put_nowait(message)


class Stage:
    """A broker with a gateway's ear on it, schedulers, and a worker, all of one cell."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self._server = server
        self._open = AsyncExitStack()
        self.model = f"model-{secrets.token_hex(4)}"
        self.gateway = f"g-{self.model}"
        self.frames: asyncio.Queue[TokenFrame] = asyncio.Queue()
        self.pool = FakePool(64)
        self.engine = FakeEngine(self.pool)
        self.stop = asyncio.Event()
        self._folder = folder

    async def open(self) -> None:
        ear = await self._open.enter_async_context(self._server.connect("gateway"))
        await ear.subscribe(flow.tokens_subject(self.gateway), self._hear)

    async def close(self) -> None:
        await self._open.aclose()

    async def scheduler(self) -> Scheduler:
        bus = await self._open.enter_async_context(self._server.connect("scheduler"))
        await bus.declare_cells()
        record = CellRecord(self.model, "c0", 0, "s", "", 16, "fake-model", 0)
        scheduler = Scheduler(bus, record)
        port = await self._open.enter_async_context(serve_link("127.0.0.1:0", TOKEN, scheduler.serve))
        scheduler.record = replace(record, address=f"127.0.0.1:{port}")
        return scheduler

    async def worker(self, *, token: str = TOKEN) -> None:
        """Start one more; `link` and `running` are the last one's."""
        bus = await self._open.enter_async_context(self._server.connect("decode_worker"))
        config = WorkerConfig(
            model=self.model, model_dir=self._folder, pool="unused", link_token=SecretStr(token), instance="w0"
        )
        leader = CellLeader(await bus.cells(), self.model, "c0")
        worker = Worker(config, ROLE, fake_loaded(self.pool, self.engine), bus, leader)
        self.link, self.running = worker.link, asyncio.create_task(worker.run(self.stop, DRAIN_S))
        self._open.push_async_callback(_settle, self.running, self.stop)

    def guest(self, sequence: int = 1, **changes: object) -> Resident:
        return resident(sequence, prompt(20), range(4, 12), gateway=self.gateway, **changes)

    async def rows(self, number: int) -> list[FrameRow]:
        rows: list[FrameRow] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(rows) < number:
                rows += (await self.frames.get()).rows
        return rows

    def _hear(self, payload: bytes, traceparent: str) -> None:
        self.frames.put_nowait(codec.decode(TokenFrame, payload))


async def _settle(running: "asyncio.Task[None]", stop: asyncio.Event) -> None:
    stop.set()
    await asyncio.wait((running,), timeout=PATIENCE_S)
    assert running.done()


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
    """Orders, acknowledgements and fencing alike: the thread of the old term's thaw must not be heard."""
    _, talk, _ = await begun(stage)
    new = Orders(term=9)
    old = Orders(term=8)

    await talk.send(new.snapshot(version=2), FencedOff(8, "stale"), Ack(8, 99), old.snapshot(version=3), new.delta())

    assert [(await talk.expect(Began)).version for _ in range(2)] == [2, 3]
    assert stage.link.dropped == 3


async def test_a_newer_term_takes_the_worker_over(stage: Stage) -> None:
    """The old scheduler may hang with an open link: the directory tells who leads."""
    _, old, orders = await begun(stage)
    successor = await stage.scheduler()
    term = await successor.lead()

    talk = await successor.attached()
    hello = await talk.expect(Hello)
    await talk.send(Orders(term).snapshot(version=hello.version + 1))

    assert (hello.term, hello.version) == (orders.term, 1)
    assert (await talk.expect(Began)).term == term == orders.term + 1
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
    rows = await stage.rows(8)

    assert result.rows[0].at_until
    assert {row.request_id for row in rows} == {"r1"}
    assert tuple(token for row in rows for token in row.ids) == expected(prompt(20), PARAMS)[0]
