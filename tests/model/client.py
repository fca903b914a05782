"""A process's connection to the modelled broker: what libs.runtime.bus.Bus promises."""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import cast

from libs.contracts import flow
from libs.contracts.errors import Fenced
from libs.contracts.messages import CellRecord
from libs.runtime.bus import Bus, NoResponder, RequestTimeout
from libs.runtime.work_queue import ENQUEUE_TIMEOUT_S, FENCE_DOUBT_S, Work
from services.scheduler.intake import Superseded
from tests.model.broker import Broker, Pull, Stored, WorkQueue
from tests.model.process import Process

MAX_PAYLOAD_BYTES = 1 << 20


class Client:
    def __init__(self, broker: Broker, process: Process) -> None:
        self.connected = True
        self.max_payload_bytes = MAX_PAYLOAD_BYTES
        self.counts: Counter[str] = Counter()
        self._broker, self._process = broker, process

    def as_bus(self) -> Bus:
        return cast(Bus, self)

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """The connection never breaks here; messages get lost one by one."""

    def new_inbox(self) -> str:
        return f"{flow.inbox_prefix(self._process.name)}.echo"

    async def publish(self, subject: str, payload: bytes, *, traceparent: str = "") -> None:
        for process, handler in self._broker.listeners(subject):
            self._send(subject, process, _caller(process, handler, payload, traceparent))

    async def subscribe(self, subject: str, handler: Callable[[bytes, str], object]) -> "Subscription":
        self._broker.handlers[(subject, self._process.name)] = (self._process, handler)
        return Subscription(lambda: self._broker.handlers.pop((subject, self._process.name), None))

    async def serve(self, subject: str, handler: Callable[[bytes, str], Awaitable[bytes]]) -> "Subscription":
        return await self.subscribe(subject, handler)

    async def request(self, subject: str, payload: bytes, *, timeout_s: float, traceparent: str = "") -> bytes:
        await asyncio.sleep(0)
        listeners = self._broker.listeners(subject)
        if not listeners:
            raise NoResponder(f"nobody answers {subject}")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        for process, handler in listeners:
            self._send(subject, process, self._asker(process, handler, (payload, traceparent), answer))
        return await self._within(timeout_s, answer, subject)

    async def declare_work_queue(self, stream: str, subjects: Sequence[str], *, max_messages: int) -> None:
        """They exist from the beginning."""

    async def declare_log(self, stream: str, subjects: Sequence[str], *, max_messages: int) -> None:
        """For people; the model has none."""

    async def enqueue(self, subject: str, payload: bytes, *, message_id: str, traceparent: str = "") -> None:
        await asyncio.sleep(0)
        if subject.startswith(flow.DEAD_LETTERS_SUBJECTS.partition(".")[0]):
            return
        queue = self._broker.queues[subject.partition(".")[0]]
        stored: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def store() -> None:
            queue.store(subject, payload, message_id, traceparent)
            self._answer(queue.name, stored, b"")

        self._broker.network.send((self._process.name, queue.name), store, may_be_lost=True)
        await self._within(ENQUEUE_TIMEOUT_S, stored, subject)

    async def work(
        self,
        stream: str,
        *,
        consumer: str,
        filter_subject: str,
        ack_wait_s: float,
        max_ack_pending: int,
        durable: bool = True,
    ) -> AsyncGenerator[Work]:
        queue = self._broker.queues[stream]
        if not queue.claim(consumer, filter_subject, ack_wait_s):
            raise Fenced(f"a higher term has {filter_subject}")
        arrived: asyncio.Queue[Stored | None] = asyncio.Queue()
        while True:
            queue.pull(consumer, filter_subject, Pull(self._process, arrived.put_nowait))
            message = await arrived.get()
            if message is not None:
                yield cast(Work, ModelWork(self, queue, consumer, message))
                continue
            await asyncio.sleep(FENCE_DOUBT_S)
            if not queue.is_owned_by(consumer, filter_subject):
                raise Fenced(f"another consumer took over {filter_subject}")

    async def cells(self) -> "Directory":
        return self.directory()

    def directory(self) -> "Directory":
        directory = Directory()
        if self._broker.record is not None:
            directory.take(self._broker.record)
        self._broker.watchers.append((self._process, directory.take))
        return directory

    async def declare_cells(self) -> None:
        """It exists from the beginning."""

    async def claim_term(self, record: CellRecord, *, after: int | None = None) -> CellRecord:
        await asyncio.sleep(0)
        return self._broker.claim(record)

    async def put_cell(self, record: CellRecord) -> None:
        await asyncio.sleep(0)
        held = self._broker.record
        if held is not None and held.term != record.term:
            raise Fenced(f"cell {record.cell} has term {held.term}, not {record.term}")
        self._broker.put(record)

    def tell_queue(self, queue: WorkQueue, tell: Callable[[], object]) -> None:
        """An ack that is lost means a redelivery, where that comes soon."""
        channel = (self._process.name, f"{queue.name} acks")
        self._broker.network.send(channel, tell, may_be_lost=queue.name == flow.REQUESTS_STREAM)

    def _send(self, subject: str, process: Process, deliver: Callable[[], object]) -> None:
        if self._process.is_alive:
            self._broker.network.send((self._process.name, subject, process.name), deliver, may_be_lost=True)

    def _asker(
        self,
        process: Process,
        handler: Callable[..., object],
        request: tuple[bytes, str],
        answer: "asyncio.Future[bytes]",
    ) -> Callable[[], object]:
        async def respond() -> None:
            try:
                payload = await cast(Awaitable[bytes], handler(*request))
            except Superseded:
                return  # as of whatever cannot be answered, the bus makes a note of it
            if process.is_alive:
                self._answer(process.name, answer, payload)

        return lambda: process.call(lambda: process.loop.create_task(respond()))

    def _answer(self, responder: str, answer: "asyncio.Future[bytes]", payload: bytes) -> None:
        def arrive() -> None:
            if not answer.done():
                answer.set_result(payload)

        channel = (responder, "inbox", self._process.name)
        self._broker.network.send(channel, lambda: self._process.call(arrive), may_be_lost=True)

    async def _within(self, timeout_s: float, answer: "asyncio.Future[bytes]", subject: str) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            raise RequestTimeout(f"{subject} was not answered within {timeout_s:g} s") from error


def _caller(process: Process, handler: Callable[..., object], payload: bytes, traceparent: str) -> Callable[[], object]:
    def handle() -> None:
        result = handler(payload, traceparent)
        assert not inspect.isawaitable(result), "every subscriber of the services handles a message at once"

    return lambda: process.call(handle)


class Subscription:
    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget

    async def close(self) -> None:
        self._forget()


class ModelWork:
    """One delivery of a stored message."""

    def __init__(self, client: Client, queue: WorkQueue, consumer: str, message: Stored) -> None:
        self._client, self._queue, self._consumer, self._message = client, queue, consumer, message
        self.payload, self.traceparent = message.payload, message.traceparent
        self.deliveries: int = message.deliveries
        self.stored_at: datetime = message.stored_at

    async def ack(self) -> None:
        self._client.tell_queue(self._queue, lambda: self._queue.ack(self._consumer, self._message))

    async def nak(self, delay_s: float = 0) -> None:
        self._postpone(delay_s)

    async def extend(self) -> None:
        self._postpone(flow.TOKENIZER_ACK_WAIT_S)

    def _postpone(self, delay_s: float) -> None:
        self._client.tell_queue(self._queue, lambda: self._queue.postpone(self._consumer, self._message, delay_s))


class Directory:
    """The cell's record as one client knows it."""

    def __init__(self) -> None:
        self._record: CellRecord | None = None
        self.changed = asyncio.Event()

    def get(self, model: str) -> tuple[CellRecord, ...]:
        return () if self._record is None or self._record.model != model else (self._record,)

    def take(self, record: CellRecord) -> None:
        self._record = record
        self.changed.set()
        self.changed = asyncio.Event()
