"""A worker's link to a scheduler, in place of gRPC: both ways keep their order; a cut loses what is under way."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from libs.contracts.messages import SchedulerMessage, StepResults, WorkerMessage, WorkerReport
from libs.runtime.link import DIAL_TIMEOUT_S, LinkClient, LinkLost, LinkRefused, LinkSession
from tests.model.network import Network
from tests.model.process import Process

Serve = Callable[[LinkSession], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class End:
    """The last that a side hears."""

    refusal: str = ""
    may_retry: bool = True


class Wire:
    """One dial and what follows. Each side learns by itself that it is over."""

    def __init__(self, number: int, network: Network, worker: Process, scheduler: Process) -> None:
        self.name = f"link {number}"
        self._network, self._worker, self._scheduler = network, worker, scheduler
        self.is_cut = False
        self.accepted: asyncio.Future[None] = worker.loop.create_future()
        self.to_worker: asyncio.Queue[SchedulerMessage | End] = asyncio.Queue()
        self.to_scheduler: asyncio.Queue[WorkerMessage | End] = asyncio.Queue()

    def dial(self, serve: Serve) -> None:
        self._up(lambda: self._scheduler.loop.create_task(self._attach(serve)))

    def say_up(self, message: WorkerMessage | End) -> None:
        if not self.is_cut:
            self._up(lambda: self.to_scheduler.put_nowait(message))

    def say_down(self, message: SchedulerMessage | End) -> None:
        if not self.is_cut:
            self._down(lambda: self.to_worker.put_nowait(message))

    def cut(self) -> None:
        """What is under way is lost, and both sides will notice."""
        if self.is_cut:
            return
        for way in ("up", "down"):
            self._network.clear((self.name, way))
        self.say_up(End())
        self.say_down(End())
        self.is_cut = True

    async def _attach(self, serve: Serve) -> None:
        self._down(self._accept)
        try:
            await serve(cast(LinkSession, Session(self)))
        finally:
            self.say_down(End())

    def _accept(self) -> None:
        if not self.accepted.done():
            self.accepted.set_result(None)

    def _up(self, arrive: Callable[[], object]) -> None:
        self._network.send((self.name, "up"), lambda: self._scheduler.call(arrive), may_be_lost=False)

    def _down(self, arrive: Callable[[], object]) -> None:
        self._network.send((self.name, "down"), lambda: self._worker.call(arrive), may_be_lost=False)


class Session:
    """The scheduler's side: what libs.runtime.link.LinkSession promises."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.peer = wire.name

    async def receive(self) -> AsyncIterator[WorkerReport]:
        while not isinstance(message := await self._wire.to_scheduler.get(), End):
            for each in message.results if isinstance(message, StepResults) else (message,):
                yield each

    async def send(self, message: SchedulerMessage) -> None:
        self._wire.say_down(message)

    async def refuse(self, reason: str, *, retry: bool = False) -> None:
        self._wire.say_down(End(reason, retry))
        raise asyncio.CancelledError


class Dialled:
    """The worker's side: what libs.runtime.link.LinkClient promises."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send(self, message: WorkerMessage) -> None:
        self._wire.say_up(message)

    async def receive(self) -> AsyncIterator[SchedulerMessage]:
        while not isinstance(message := await self._wire.to_worker.get(), End):
            yield message
        raise LinkLost(message.refusal) if message.may_retry else LinkRefused(message.refusal)


@asynccontextmanager
async def dialled(wire: Wire, serve: Serve) -> AsyncIterator[LinkClient]:
    """What libs.runtime.link.dial_link promises."""
    wire.dial(serve)
    try:
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await wire.accepted
        except TimeoutError as error:
            raise LinkLost("no answer") from error
        yield cast(LinkClient, Dialled(wire))
    finally:
        wire.say_up(End())
