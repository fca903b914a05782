"""Everything that leaves the gateway for another service: requests, control messages, the alive beat."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from libs.contracts import codec, flow
from libs.contracts.errors import MalformedMessage, Overloaded, Unavailable
from libs.contracts.messages import (
    Alive,
    Cancel,
    CellStatus,
    Delivered,
    FrameRow,
    Request,
    Resend,
    Resent,
    Scored,
    ScoresQuery,
    StopAt,
)
from libs.runtime.bus import Bus
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger
from libs.runtime.status import cell_status
from services.gateway.errors_http import Refused
from services.gateway.terms import Terms

ANSWER_TIMEOUT_S = 1.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0

QUEUE_PATIENCE_S = 3.0  # a broker that restarts is back within this; the message id makes a second try harmless
QUEUE_RETRY_S = 0.1

log = get_logger("gateway")


class Outbox:
    """Mutable: it owns the background tasks that repeat control messages until they are answered."""

    def __init__(
        self, bus: Bus, gateway: str, terms: Terms, *, patience_s: float, unix_s: Callable[[], float] = time.time
    ) -> None:
        self.terms = terms
        self._bus = bus
        self._gateway = gateway
        self._patience_s = patience_s  # a request that old has passed its deadline everywhere
        self._unix_s = unix_s
        self._errands: set[asyncio.Task[None]] = set()

    async def submit(self, request: Request, traceparent: str) -> None:
        """Put a request into its model's queue. Raises Overloaded, Unavailable, Refused for one too large to send."""
        payload = codec.encode(request)
        if len(payload) > self._bus.max_payload_bytes:
            raise Refused("body_too_large", "the prompt is too large to be queued")
        give_up_s = asyncio.get_running_loop().time() + QUEUE_PATIENCE_S
        while True:
            try:
                return await self._enqueue(request, payload, traceparent)
            except Unavailable as error:
                if asyncio.get_running_loop().time() >= give_up_s:
                    log.warning("request_not_queued", request_id=request.request_id, reason=error.message)
                    raise Unavailable("the request could not be queued, try again") from error
            await asyncio.sleep(QUEUE_RETRY_S)

    def submit_again(self, waiting: Sequence[tuple[Request, str]], is_wanted: Callable[[str], bool]) -> None:
        """Queue requests, each with its trace context, that a broker without its old store may have lost.

        One after the other, each as long as it is wanted. What was not lost is dropped by its message id.
        """
        self._run(self._submit_again(waiting, is_wanted))

    def tell(
        self,
        cell: str,
        messages: Sequence[Cancel | StopAt | Delivered],
        traceparent: str,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Send each message to the cell's scheduler until it is answered, in this order, then call `done`."""
        self._run(self._tell(cell, messages, traceparent, done))

    def cancel(self, cell: str, row: FrameRow) -> None:
        """Have the scheduler drop a request that is not ours: the longest possible deadline is assumed."""
        deadline_unix_ms = int((self._unix_s() + self._patience_s) * 1000)
        self.tell(cell, (Cancel(row.request_id, deadline_unix_ms, epoch=row.epoch),), row.traceparent)

    async def ask(self, cell: str, resend: Resend, traceparent: str) -> Resent | None:
        """What the scheduler has logged, or None when it does not answer in time."""
        failpoint("gateway.resend")
        try:
            return codec.decode(Resent, await self._control(cell, resend, traceparent))
        except (Unavailable, MalformedMessage):
            return None

    async def ask_scores(self, cell: str, query: ScoresQuery, traceparent: str) -> Scored | None:
        """What the scheduler knows of a prompt, or None when it does not answer in time."""
        try:
            return codec.decode(Scored, await self._control(cell, query, traceparent))
        except (Unavailable, MalformedMessage):
            return None

    async def status(self, cell: str, *, timeout_s: float) -> CellStatus | None:
        """How the cell's scheduler describes itself, or None when it does not answer in time."""
        return await cell_status(self._bus, cell, timeout_s=timeout_s)

    async def beat(self, occupied: asyncio.Event) -> None:
        """Say that this gateway lives while it holds requests: a second of silence is their cancellation."""
        payload = codec.encode(Alive(self._gateway))
        while True:
            await occupied.wait()
            try:
                await self._bus.publish(flow.alive_subject(self._gateway), payload)
            except Unavailable:
                log.debug("alive_not_sent")
            await asyncio.sleep(flow.ALIVE_INTERVAL_S)

    async def settle(self, timeout_s: float) -> None:
        """Wait for the errands under way, then give up on the rest."""
        if self._errands:
            await asyncio.wait(self._errands, timeout=timeout_s)
        for errand in self._errands:
            errand.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        errand = asyncio.create_task(work)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    async def _submit_again(self, waiting: Sequence[tuple[Request, str]], is_wanted: Callable[[str], bool]) -> None:
        for request, traceparent in waiting:
            while is_wanted(request.request_id):
                try:
                    await self._enqueue(request, codec.encode(request), traceparent)
                    break
                except (Overloaded, Unavailable) as error:
                    log.debug("queued_again", request_id=request.request_id, reason=error.message)
                await asyncio.sleep(LONGEST_PAUSE_S * random.uniform(0.5, 1))

    async def _enqueue(self, request: Request, payload: bytes, traceparent: str) -> None:
        message_id = f"{request.request_id}:{request.epoch}:request"
        subject = flow.requests_subject(request.model)
        failpoint("gateway.publish.before")
        await self._bus.enqueue(subject, payload, message_id=message_id, traceparent=traceparent)
        failpoint("gateway.publish.after")

    async def _tell(
        self,
        cell: str,
        messages: Sequence[Cancel | StopAt | Delivered],
        traceparent: str,
        done: Callable[[], None] | None,
    ) -> None:
        for message in messages:
            await self._repeat(cell, message, traceparent)
        if done is not None:
            done()

    async def _repeat(self, cell: str, message: Cancel | StopAt | Delivered, traceparent: str) -> None:
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        give_up_s = loop.time() + self._patience_s
        while True:
            try:
                await self._control(cell, message, traceparent)
                return
            except Unavailable as error:
                if loop.time() >= give_up_s:
                    log.warning("not_told", cell=cell, kind=type(message).__name__, request_id=message.request_id)
                    return
                log.debug("told_again", cell=cell, kind=type(message).__name__, reason=error.message)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _control(
        self, cell: str, message: Cancel | StopAt | Delivered | Resend | ScoresQuery, traceparent: str
    ) -> bytes:
        payload = codec.encode_in("ControlMessage", replace(message, term=self.terms.of(cell)))
        subject = flow.control_subject(cell)
        return await self._bus.request(subject, payload, timeout_s=ANSWER_TIMEOUT_S, traceparent=traceparent)
