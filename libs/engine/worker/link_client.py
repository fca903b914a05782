"""Keeps a worker attached to the scheduler that leads its cell: finds it, says Hello, obeys, reports, comes back.

The highest term seen is obeyed; what a lower one says, or what is meant for another life, is dropped and counted.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from libs.contracts.errors import Fenced, MalformedMessage
from libs.contracts.messages import (
    Ack,
    Began,
    CellRecord,
    Delta,
    FencedOff,
    Leaving,
    Resync,
    SchedulerMessage,
    Snapshot,
    StepResult,
    StepResults,
    WorkerMessage,
)
from libs.engine.worker.boundary import HelloReady, HelloWanted
from libs.engine.worker.bundle import Bundle
from libs.engine.worker.order_check import OrderLimits
from libs.engine.worker.unacked import Unacked
from libs.runtime.cells import CellDirectory
from libs.runtime.failpoints import failpoint
from libs.runtime.link import LinkClient, LinkLost, dial_link
from libs.runtime.logs import get_logger

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0

Dial = Callable[[str, str], AbstractAsyncContextManager[LinkClient]]  # address, token

log = get_logger("worker_link")


class CellLeader:
    """Where the scheduler of one cell is."""

    def __init__(self, directory: CellDirectory, model: str, cell: str) -> None:
        self._directory, self._model, self._cell = directory, model, cell

    async def of_term(self, term: int) -> CellRecord:
        """Wait for a leader of this term or a higher one."""
        while True:
            changed = self._directory.changed
            for record in self._directory.get(self._model):
                if record.cell == self._cell and record.term >= term and record.address:
                    return record
            await changed.wait()


class SchedulerLink:
    """One at a time; `send` and `report` never wait, and work whether or not a scheduler is there."""

    def __init__(
        self,
        leader: CellLeader,
        *,
        token: str,
        limits: OrderLimits,
        to_steps: Callable[[Snapshot | Delta | HelloWanted], None],
        dial: Dial = dial_link,
    ) -> None:
        self.dropped = 0
        self.is_attached = False  # the scheduler accepted us and gave an order
        self._leader, self._token, self._limits, self._to_steps = leader, token, limits, to_steps
        self._dial = dial
        self._term, self._incarnation = 0, ""
        self._unacked = Unacked()
        self._bundle = Bundle()
        self._session = 0
        self._is_greeted = False
        self._leaving: Leaving | None = None
        self._link: LinkClient | None = None
        self._is_over = False  # everything is said
        self._outbox: asyncio.Queue[WorkerMessage] = asyncio.Queue()

    async def run(self) -> NoReturn:
        """Attach, again and again. Raises LinkRefused when it can never be accepted, Fenced when it must exit."""
        failures = 0
        while True:
            record = await self._leader.of_term(max(1, self._term))
            try:
                await self._attach(record)
            except LinkLost as error:
                failures = 0 if self.is_attached else failures + 1
                log.warning("link_lost", scheduler=record.scheduler, term=record.term, reason=error.message)
            finally:
                self._detach()
            if self._is_over:
                await asyncio.Event().wait()
            await self._pause(record.term, failures)

    def send(self, message: Began | Resync) -> None:
        """Tell the scheduler, if there is one: a later one learns it from Hello."""
        self._ship(self._bundle.take())  # it follows the steps before it
        if self._is_greeted:
            self._outbox.put_nowait(message)

    def report(self, result: StepResult) -> None:
        """Tell the scheduler, soon or after attaching, until it acknowledges."""
        self._unacked.keep(result)
        self._ship(self._bundle.add(result))

    def greet(self, ready: HelloReady) -> None:
        """Open the conversation of this session: Hello, then everything unacknowledged."""
        if ready.session != self._session or self._is_greeted:
            return
        failpoint("worker.hello")
        self._is_greeted, self._incarnation = True, ready.hello.incarnation
        self._outbox.put_nowait(ready.hello)
        self._bundle.take()  # what waits is unacknowledged, too
        for result in self._unacked.pending():
            self._outbox.put_nowait(result)
        if self._leaving is not None:
            self._outbox.put_nowait(self._leaving)

    def leave(self, incarnation: str) -> None:
        """Have the scheduler, this one and each that follows, give to others what is here."""
        self._leaving = Leaving(incarnation, self._term)
        if self._is_greeted:
            self._outbox.put_nowait(self._leaving)

    async def finish(self) -> None:
        """Say what is unsaid, and wait until the present scheduler has read it; at once when there is none."""
        self._ship(self._bundle.take())
        self._is_over = True
        if self._is_greeted and self._link is not None:
            await self._outbox.join()
            await self._link.finish()

    def _ship(self, results: tuple[StepResult, ...]) -> None:
        if self._is_greeted and results:
            self._outbox.put_nowait(results[0] if len(results) == 1 else StepResults(results))

    async def _attach(self, record: CellRecord) -> None:
        failpoint("worker.attach")
        async with self._dial(record.address, self._token) as link:
            self._session, self._link = self._session + 1, link
            self._to_steps(HelloWanted(self._session))
            await _first_of(self._send_all(link), self._receive_all(link), self._superseded(record))

    def _detach(self) -> None:
        self.is_attached = self._is_greeted = False
        self._link = None
        self._outbox = asyncio.Queue()

    async def _send_all(self, link: LinkClient) -> NoReturn:
        while True:
            message = await self._outbox.get()
            failpoint("worker.result.send")
            await link.send(message)
            self._outbox.task_done()

    async def _receive_all(self, link: LinkClient) -> None:
        async for message in link.receive():
            self._obey(message)

    def _obey(self, message: SchedulerMessage) -> None:
        if message.term < self._term or message.incarnation not in ("", self._incarnation):
            self.dropped += 1
            return
        match message:
            case Ack():
                failpoint("worker.ack")
                self._unacked.ack(message.step_number)
            case FencedOff():
                raise Fenced(message.reason)
            case Snapshot() | Delta():
                self._pass_on(message)

    def _pass_on(self, order: Snapshot | Delta) -> None:
        try:
            self._limits.check(order)
        except MalformedMessage as error:
            self.dropped += 1
            log.error("malformed_order", term=order.term, version=order.version, reason=error.message)
            return
        if isinstance(order, Snapshot):
            self._term = order.term
            if not self.is_attached:
                log.info("attached", term=order.term, version=order.version)
            self.is_attached = True
        self._to_steps(order)

    async def _superseded(self, record: CellRecord) -> NoReturn:
        newer = await self._leader.of_term(record.term + 1)
        raise LinkLost(f"term {newer.term} leads the cell")

    async def _pause(self, term: int, failures: int) -> None:
        """Before dialling again: short at first, for a link closed for a second is a worker's death.

        A newer leader ends it at once, also one that came while we still dialled: it ends whom it does not hear of.
        """
        pause_s = random.uniform(0.5, 1) * min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 10))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._leader.of_term(term + 1)


async def _first_of(*parts: Awaitable[None]) -> None:
    """Run all until one ends, end the others, and pass on its error."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
