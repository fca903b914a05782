"""A stage for workers: a real broker and link, a scripted scheduler, a fake engine."""

import asyncio
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import SecretStr

from libs.contracts import codec, flow
from libs.contracts.messages import (
    CellRecord,
    FrameRow,
    Resident,
    SchedulerMessage,
    StepResult,
    TokenFrame,
    WorkerReport,
)
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.link_client import CellLeader
from libs.engine.worker.serve import Role, Worker
from libs.runtime.bus import Bus
from libs.runtime.link import LinkSession, serve_link
from tests.fakes.engine import FakeEngine, FakePool, fake_loaded
from tests.integration.servers import NatsServer
from tests.unit.worker.orders import prompt, resident

M = TypeVar("M", bound=WorkerReport)

PATIENCE_S = 10.0
DRAIN_S = 5.0
TOKEN = "link-token"
ROLE = Role("decode_worker", "decode", flow.DECODE)


@dataclass
class Talk:
    """One worker's link as the scheduler sees it."""

    session: LinkSession
    inbox: asyncio.Queue[WorkerReport] = field(default_factory=asyncio.Queue)
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
        return (await self._bus.claim_term(self.record)).term

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
