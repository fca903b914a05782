"""What comes in over NATS: sequences from the cell's work queue, control requests, gateways' heartbeats."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from itertools import count

from libs.contracts import codec, flow
from libs.contracts import conventions as names
from libs.contracts.errors import MalformedMessage
from libs.contracts.messages import Alive, CellStatus, ControlMessage, Done, Resent, Scored, Sequence, StatusQuery
from libs.runtime.bus import Bus
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger
from libs.runtime.tracing import Span, is_exported, leaf, monotonic_ns, start_span
from libs.runtime.work_queue import Work
from services.scheduler.background import Background
from services.scheduler.events import AckRequest, Arrived, Asked, Event, Ordered, Reply
from services.scheduler.state import State

CLOCKS_DIFFER = timedelta(seconds=2)  # the broker's and ours; asking about a new request costs one question
ACK_WAIT_S = 6 * 3600.0  # longer than any request: what is not acknowledged belongs to this term until it ends

log = get_logger("scheduler")


class Superseded(MalformedMessage):
    """Who asks knows of a higher term than ours: that one is to answer, not we."""


class Intake:
    """Keeps, per request, its queue messages until they are acknowledged and its span until its first order."""

    def __init__(
        self,
        bus: Bus,
        state: State,
        post: Callable[[Event], None],
        background: Background,
        begun_at: datetime,
        doubt: Callable[[], None],
    ) -> None:
        """`begun_at` is when this term began; `doubt` looks whether it is over."""
        self._bus, self._state, self._post, self._background = bus, state, post, background
        self._works: dict[str, list[Work]] = {}
        self._spans: dict[str, Span] = {}
        self._asked: dict[int, asyncio.Future[Done | Resent | Scored | CellStatus]] = {}
        self._tickets = count(1)
        self._begun_at, self._doubt = begun_at, doubt

    async def listen(self) -> None:
        """Answer control requests and hear gateways from now on."""
        await self._bus.serve(flow.control_subject(self._state.policy.cell), self._control)
        await self._bus.subscribe(flow.ALIVE_SUBJECTS, self._alive)

    async def pull(self, max_pending: int) -> None:
        """Take sequences for ever. Raises Fenced when a newer term takes them."""
        policy = self._state.policy
        sequences = self._bus.work(
            flow.SEQUENCES_STREAM,
            consumer=flow.term_consumer(self._state.policy.model, self._state.policy.cell, self._state.term),
            filter_subject=flow.sequences_subject(policy.model, policy.cell),
            ack_wait_s=ACK_WAIT_S,
            max_ack_pending=max_pending,
        )
        async with aclosing(sequences) as works:
            async for work in works:
                await self._take(work)

    def acknowledge(self, command: AckRequest) -> None:
        """Nothing is owed for this request: all its messages leave the queue."""
        failpoint("scheduler.ack")
        log.info("request_done", request_id=command.request_id, reason=command.reason)
        for work in self._works.pop(command.request_id, ()):
            self._background.spawn(work.ack())
        span = self._spans.pop(command.request_id, None)
        if span is not None:
            span.end()

    def ordered(self, command: Ordered) -> None:
        """The wait is over: the span tells its reasons."""
        span = self._spans.pop(command.request_id, None)
        if span is not None:
            span.set(**{names.WAIT_MS.format(reason=reason): waited_s * 1000 for reason, waited_s in command.waited_s})
            span.end()

    def reply(self, command: Reply) -> None:
        waiting = self._asked.pop(command.ticket, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(command.message)

    async def _take(self, work: Work) -> None:
        failpoint("scheduler.pulled")
        try:
            sequence = codec.decode(Sequence, work.payload)
        except MalformedMessage as error:
            self._bus.counts["malformed_message"] += 1
            log.warning("malformed_message", subject=flow.SEQUENCES_STREAM, reason=error.message)
            await work.reject()
            return
        works = self._works.setdefault(sequence.request_id, [])
        works.append(work)
        if len(works) == 1:
            attributes = {names.REQUEST_ID: sequence.request_id, names.CELL: self._state.policy.cell}
            span = start_span(flow.SCHEDULE, parent=work.traceparent, attributes=attributes)
            self._spans[sequence.request_id] = span
            if is_exported(span.traceparent):
                leaf(names.WAIT_SCHEDULER, work.traceparent, monotonic_ns(work.stored_at), time.monotonic_ns())
            is_older = work.stored_at < self._begun_at + CLOCKS_DIFFER
            self._post(Arrived(sequence, span.traceparent, is_older))
        else:
            log.debug("duplicate_sequence", request_id=sequence.request_id, deliveries=work.deliveries)

    async def _control(self, payload: bytes, traceparent: str) -> bytes:
        message: ControlMessage = codec.decode_in("ControlMessage", payload)
        failpoint("scheduler.control.in")
        if not isinstance(message, StatusQuery) and message.term > self._state.term:
            self._state.counts["superseded_control"] += 1
            self._doubt()
            raise Superseded(f"term {message.term} leads cell {self._state.policy.cell}, not {self._state.term}")
        ticket = next(self._tickets)
        answer = self._asked[ticket] = asyncio.get_running_loop().create_future()
        self._post(Asked(ticket, message))
        return codec.encode(await answer)

    def _alive(self, payload: bytes, traceparent: str) -> None:
        """Gateways without requests here are no event: an idle cell stays idle."""
        alive = codec.decode(Alive, payload)
        if alive.gateway in self._state.gateways:
            self._post(alive)
