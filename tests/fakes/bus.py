"""A bus inside one process: what libs.runtime.bus.Bus promises of requests and queues, without a broker."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from libs.contracts.errors import HeadraceError, Unavailable
from libs.contracts.messages import CellRecord
from libs.runtime.bus import Bus, NoResponder, RequestTimeout

Handler = Callable[[bytes, str], None]
Responder = Callable[[bytes, str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Queued:
    subject: str
    payload: bytes
    message_id: str
    traceparent: str


class FakeCells:
    """A directory that holds what the test puts in."""

    def __init__(self) -> None:
        self.records: list[CellRecord] = []

    def get(self, model: str) -> tuple[CellRecord, ...]:
        return tuple(record for record in self.records if record.model == model)


class FakeSubscription:
    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget

    async def close(self) -> None:
        self._forget()


class FakeBus:
    """One broker and all its clients. Messages arrive at once, in the order sent; nothing is lost by itself."""

    def __init__(self) -> None:
        self.connected = True
        self.max_payload_bytes = 8 << 20
        self.counts: Counter[str] = Counter()
        self.queue: asyncio.Queue[Queued] = asyncio.Queue()
        self.enqueue_error: HeadraceError | None = None
        self.deaf: set[str] = set()  # subjects whose requests are swallowed
        self.published: list[tuple[str, bytes]] = []
        self.directory = FakeCells()
        self._handlers: dict[str, Handler] = {}
        self._responders: dict[str, Responder] = {}

    def as_bus(self) -> Bus:
        return cast(Bus, self)

    async def publish(self, subject: str, payload: bytes, *, traceparent: str = "") -> None:
        if not self.connected:
            raise Unavailable("the connection to the broker is closed")
        self.published.append((subject, payload))
        if handler := self._handlers.get(subject):
            handler(payload, traceparent)

    async def request(self, subject: str, payload: bytes, *, timeout_s: float, traceparent: str = "") -> bytes:
        await asyncio.sleep(0)
        if subject in self.deaf:
            raise RequestTimeout(f"{subject} was not answered")
        if not self.connected or subject not in self._responders:
            raise NoResponder(f"nobody answers {subject}")
        return await self._responders[subject](payload, traceparent)

    async def subscribe(self, subject: str, handler: Handler) -> FakeSubscription:
        self._handlers[subject] = handler
        return FakeSubscription(lambda: self._handlers.pop(subject, None))

    async def serve(self, subject: str, handler: Responder, *, queue: str = "") -> FakeSubscription:
        self._responders[subject] = handler
        return FakeSubscription(lambda: self._responders.pop(subject, None))

    async def enqueue(self, subject: str, payload: bytes, *, message_id: str, traceparent: str = "") -> None:
        await asyncio.sleep(0)
        if self.enqueue_error is not None:
            raise self.enqueue_error
        self.queue.put_nowait(Queued(subject, payload, message_id, traceparent))

    async def cells(self) -> FakeCells:
        return self.directory
