"""Handles requests side by side: prepare, publish, have the gateway accept, then acknowledge.

A request is acknowledged to its queue only when all of that is done. One that is delivered again (this process died, or
was slow) is done again: the ids are the same, and the scheduler's queue stores a message id once.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from libs.contracts import codec, flow
from libs.contracts import conventions as names
from libs.contracts.errors import HeadraceError, MalformedMessage, WireError
from libs.contracts.messages import Accepted, Rejected, Request
from libs.contracts.trace_records import Tokenized
from libs.runtime.bus import Bus
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger
from libs.runtime.ring import OFF, Ring
from libs.runtime.tracing import Attribute, is_exported, leaf, monotonic_ns, start_span
from libs.runtime.work_queue import Work
from libs.timeline.phases import tokenizer_phases
from services.tokenizer import intake
from services.tokenizer.intake import Unconfirmed
from services.tokenizer.prepare import Prepared, Preparing

IN_FLIGHT = 64  # requests taken and not acknowledged, most of them waiting for a gateway's answer
RETRY_S = 0.2
KEEP_S = flow.TOKENIZER_ACK_WAIT_S / 2

log = get_logger("tokenizer")


class Tokenizing:
    """One tokenizer's requests in flight. `counts` tells what became of them."""

    def __init__(self, bus: Bus, preparing: Preparing, ring: Ring = OFF) -> None:
        self._bus, self._preparing, self._ring = bus, preparing, ring
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def run(self, *, until: asyncio.Event, drain_s: float) -> None:
        """Take requests until the event is set, then finish what is in flight, for `drain_s` at most."""
        pulling, stopping = asyncio.create_task(self._pull()), asyncio.create_task(until.wait())
        await asyncio.wait((pulling, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        pulling.cancel()
        await asyncio.wait((pulling,))
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=drain_s)
            log.info("drained", unfinished=len(unfinished))  # those are delivered again, to another tokenizer
            for task in unfinished:
                task.cancel()
        if not pulling.cancelled():
            pulling.result()

    async def _pull(self) -> None:
        async with aclosing(intake.pull_requests(self._bus, self._preparing.encoder.model, IN_FLIGHT)) as works:
            async for work in works:
                task = asyncio.create_task(self._handle(work))
                self._tasks.add(task)
                task.add_done_callback(self._done)
                await self._room.acquire()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("not_handled", exc_info=error)  # not acknowledged either: it comes again

    async def _handle(self, work: Work) -> None:
        """Acknowledge the message once there is nothing left to do for it; else it comes again."""
        pulled_ns = time.monotonic_ns()
        failpoint("tokenizer.pulled")
        try:
            request = codec.decode(Request, work.payload)
        except MalformedMessage as error:
            self.counts["malformed"] += 1
            log.warning("malformed_message", subject=flow.REQUESTS_STREAM, reason=error.message)
            await work.reject()
            return
        try:
            async with _kept(work):
                await self._serve(request, work, pulled_ns)
        except Unconfirmed as error:
            self.counts["retried"] += 1
            log.warning("retried", request_id=request.request_id, reason=error.message)
            await work.nak(RETRY_S)
            return
        except Exception as error:  # a prompt that finds a bug must not be tried for ever
            log.error("failed", exc_info=error, request_id=request.request_id)
            await self._reject(request, HeadraceError("the prompt could not be encoded"), work.traceparent)
        failpoint("tokenizer.ack.before")
        await work.ack()
        failpoint("tokenizer.ack.after")

    async def _serve(self, request: Request, work: Work, pulled_ns: int) -> None:
        """Publish the sequence and have the gateway accept it, or tell the gateway why not. Raises Unconfirmed."""
        attributes = {names.REQUEST_ID: request.request_id}
        record = Tokenized(request.request_id, pulled_ns)
        try:
            with start_span(flow.TOKENIZE, parent=work.traceparent, attributes=attributes) as span:
                prepared = await self._preparing.prepare(request, len(work.payload), work.stored_at, record)
                span.set(**_attributes(prepared))
                await intake.publish_sequence(self._bus, prepared.sequence, prepared.cell, span.traceparent)
                record.published_ns = time.monotonic_ns()
                record.prompt_tokens, record.known_tokens = len(prepared.sequence.ids), prepared.known_tokens
                record.cell = prepared.cell
                self._ring.put(record)
                _export(record, work, span.traceparent)
        except Unconfirmed:
            raise
        except HeadraceError as error:
            record.error = error.code
            self._ring.put(record)
            await self._reject(request, error, span.traceparent)
        else:
            await self._accept(request, prepared, span.traceparent)

    async def _accept(self, request: Request, prepared: Prepared, traceparent: str) -> None:
        """A gateway that no longer holds the request, or is gone, means that nobody waits: take it back."""
        ids = prepared.sequence.ids
        echoed = ids if request.echo_ids else ()
        accepted = Accepted(request.request_id, request.epoch, prepared.cell, len(ids), echoed)
        if await intake.tell_gateway(self._bus, request, accepted, traceparent):
            self.counts["accepted"] += 1
            failpoint("tokenizer.accepted.after")
            return
        self.counts["cancelled"] += 1
        log.info("cancelled", request_id=request.request_id)
        await intake.cancel(self._bus, request, prepared.cell, prepared.term, traceparent)

    async def _reject(self, request: Request, error: HeadraceError, traceparent: str) -> None:
        self.counts["rejected"] += 1
        log.info("rejected", request_id=request.request_id, code=error.code)
        with suppress(Unconfirmed):  # its deadline ends it
            rejected = Rejected(request.request_id, request.epoch, WireError.of(error))
            await intake.tell_gateway(self._bus, request, rejected, traceparent)


def _export(record: Tokenized, work: Work, traceparent: str) -> None:
    """The phases as spans below the request's own here."""
    if not is_exported(traceparent):
        return
    leaf(names.WAIT_TOKENIZER, work.traceparent, monotonic_ns(work.stored_at), record.pulled_ns)
    for phase in tokenizer_phases(record):
        leaf(phase.name, traceparent, phase.start_ns, phase.end_ns)


def _attributes(prepared: Prepared) -> dict[str, Attribute]:
    return {
        names.INPUT_TOKENS: len(prepared.sequence.ids),
        names.CELL: prepared.cell,
        names.KNOWN_PREFIX_TOKENS: prepared.known_tokens,
    }


@asynccontextmanager
async def _kept(work: Work) -> AsyncIterator[None]:
    """Keep the message ours while we work on it: a long prompt takes longer than the ack wait."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            await work.extend()

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
