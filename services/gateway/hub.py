"""Knows every request in flight: routes messages from the services behind to its stream, and settles its end.

A request stays here until the scheduler has confirmed that it forgot it, so that questions about its log are answered.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from libs.contracts import flow
from libs.contracts.errors import DeadlineExceeded, ExactnessViolation, HeadraceError, Overloaded, Unavailable
from libs.contracts.messages import (
    Accepted,
    Cancel,
    Delivered,
    EpochRaised,
    Failed,
    Finished,
    FrameRow,
    Known,
    LogQuery,
    Logs,
    Rejected,
    RepliesMessage,
    RequestLog,
    Resend,
    TokenFrame,
)
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger
from services.gateway.choice import Choice
from services.gateway.crowd import Crowd, Standing
from services.gateway.fetching import Fetching
from services.gateway.metrics import Metrics
from services.gateway.outbox import Outbox
from services.gateway.stream import ClientGone, Phase, Stream
from services.gateway.wire import to_wire

TICK_S = 0.1
LAST_WORDS_S = 1.0
REMEMBERED_S = 5.0  # how long late frames of a request that is gone are ignored instead of answered by Cancel

log = get_logger("gateway")


class Hub:
    """Mutable, lives in one event loop."""

    def __init__(self, outbox: Outbox, metrics: Metrics, crowd: Crowd) -> None:
        self._outbox = outbox
        self._metrics = metrics
        self._crowd = crowd
        self._streams: dict[str, Stream] = {}
        self._gone: dict[str, float] = {}  # request id → when it may be forgotten, oldest first
        self._repairing: set[asyncio.Task[None]] = set()
        self._fetching = Fetching(outbox, self._tell, self._broken)
        self._occupied = asyncio.Event()
        metrics.watch(
            running=lambda model: sum(stream.phase is Phase.STREAMING for stream in self._of(model)),
            waiting=lambda model: sum(stream.is_waiting for stream in self._of(model)),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep time until the block ends: deadlines, repairs, the alive beat."""
        tasks = (asyncio.create_task(self._tick_for_ever()), asyncio.create_task(self._outbox.beat(self._occupied)))
        try:
            yield
        finally:
            under_way = (*tasks, *self._repairing, *self._fetching.tasks)
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def check_room(self, one: Standing) -> None:
        """Raises Crowded, an Overloaded, when one more request would wait for too long."""
        waiting = [stream.standing for stream in self._streams.values() if stream.is_waiting]
        try:
            self._crowd.check(one, waiting, asyncio.get_running_loop().time())
        except Overloaded:
            self._metrics.shed.inc()
            raise

    async def send(self, stream: Stream) -> None:
        """Publish a request; from now on its stream is fed until it is over.

        Raises Overloaded, Unavailable, or Refused when it is too large; then it is not held.
        """
        self.check_room(stream.standing)  # others may have come in while its body was read
        self._crowd.joined(self._waiting(), asyncio.get_running_loop().time())
        self._streams[stream.request_id] = stream
        self._occupied.set()
        try:
            await self._outbox.submit(to_wire(stream.ticket, stream.request), stream.observer.traceparent)
        except HeadraceError:
            self._streams.pop(stream.request_id, None)
            raise

    def send_again(self) -> None:
        """The broker came back, perhaps without its store: what nobody computes yet has to be in a queue."""
        waiting = [s for s in self._streams.values() if s.is_waiting]
        if waiting:
            requests = [(to_wire(s.ticket, s.request), s.observer.traceparent) for s in waiting]
            self._outbox.submit_again(requests, self._is_waiting)

    def abandon(self, stream: Stream, error: HeadraceError | ClientGone) -> None:
        """End a request that is not over: drop it, and have the scheduler drop it. Does nothing to one that is.

        Before a cell is known nobody can be told; whoever asks for the request then hears that it is gone.
        """
        was_over = stream.over
        stream.fail(error)
        if was_over:
            return
        self._streams.pop(stream.request_id, None)
        if stream.cell:
            self._forget(stream.request_id)
            failpoint("gateway.cancel")
            cancel = Cancel(stream.request_id, stream.ticket.deadline_unix_ms, epoch=stream.epoch)
            self._outbox.tell(stream.cell, (cancel,), stream.observer.traceparent)

    async def drain(self, drain_s: float) -> None:
        """Let the requests under way finish, end those that do not, and say what the schedulers must still know."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + drain_s
        while any(not stream.over for stream in self._streams.values()) and loop.time() < end_s:
            await asyncio.sleep(TICK_S)
        for stream in tuple(self._streams.values()):
            self.abandon(stream, Unavailable("the server is shutting down"))
        await self._outbox.settle(LAST_WORDS_S)

    def on_frame(self, frame: TokenFrame) -> None:
        """Take one worker's step. Called for each message: the hot path."""
        now_s = asyncio.get_running_loop().time()
        for row in frame.rows:
            stream = self._streams.get(row.request_id)
            if stream is None:
                self._disown(frame.cell, row)
                continue
            if stream.is_stale(row):
                self._metrics.of(stream.request.model).stale_rows.inc()
                continue
            was_waiting = stream.is_waiting
            try:
                stream.on_row(row, frame.cell, now_s)
                failpoint("gateway.log.append")
            except HeadraceError as error:
                self._broken(stream, error)
            else:
                if was_waiting:
                    self._crowd.started(now_s)
                self._tell(stream)

    def on_reply(self, message: RepliesMessage) -> Known | Logs:
        """Take what a tokenizer or scheduler says about a request; answer whether it is held."""
        match message:
            case EpochRaised():
                return Logs((self._raise_epoch(message),))
            case LogQuery():
                stale = self._is_stale(message)
                return Logs(tuple(self._log(request_id, stale) for request_id in message.request_ids))
            case Accepted() | Rejected():
                stream = self._streams.get(message.request_id)
            case Finished() | Failed():
                stream = None if self._is_stale(message) else self._streams.get(message.request_id)
        if stream is not None:
            self._take(stream, message)
        return Known(stream is not None)

    def _take(self, stream: Stream, message: Accepted | Rejected | Finished | Failed) -> None:
        now_s = asyncio.get_running_loop().time()
        try:
            match message:
                case Accepted():
                    failpoint("gateway.accepted")
                    stream.on_accepted(message, now_s)
                    self._forget_if_settled(stream)
                case Rejected() if stream.cell:
                    pass  # a second handling failed; the first one's Sequence is being computed
                case Rejected() | Failed():
                    if not stream.over:
                        stream.fail(message.error.to_exception())
                        self._forget(stream.request_id)
                case Finished() if stream.is_stale(message):
                    self._metrics.stale_messages.inc()
                case Finished():
                    stream.on_finished(message, now_s)
        except HeadraceError as error:
            self._broken(stream, error)
        else:
            self._tell(stream)

    def _raise_epoch(self, message: EpochRaised) -> RequestLog:
        stale = self._is_stale(message)
        stream = self._streams.get(message.request_id)
        if stream is not None and not stale:
            stream.on_epoch_raised(message)
        failpoint("gateway.epoch.answer")
        return self._log(message.request_id, stale)

    def _is_stale(self, message: EpochRaised | LogQuery | Finished | Failed) -> bool:
        """Whether another scheduler leads the cell by now."""
        stale = self._outbox.terms.is_stale(message.cell, message.term)
        self._metrics.stale_messages.inc(stale)
        return stale

    def _log(self, request_id: str, stale: bool) -> RequestLog:
        """What is held of a request; a scheduler whose term is over is told that it is gone."""
        stream = None if stale else self._streams.get(request_id)
        return RequestLog(request_id, False, ()) if stream is None else stream.to_log()

    def _broken(self, stream: Stream, error: HeadraceError) -> None:
        if isinstance(error, ExactnessViolation):
            self._metrics.of(stream.request.model).exactness_violations.inc()
        log.error("request_broken", request_id=stream.request_id, code=error.code, reason=error.message)
        self.abandon(stream, error)

    def _of(self, model: str) -> Iterator[Stream]:
        return (stream for stream in self._streams.values() if stream.request.model == model)

    def _waiting(self) -> int:
        return sum(stream.is_waiting for stream in self._streams.values())

    def _is_waiting(self, request_id: str) -> bool:
        stream = self._streams.get(request_id)
        return stream is not None and stream.is_waiting

    def _tell(self, stream: Stream) -> None:
        """Pass on what the stream wants the scheduler to know, or to be told by it."""
        if stream.scoring is not None:
            self._fetching.look(stream)
        if messages := stream.take_messages():
            last = isinstance(messages[-1], Delivered)
            if last:
                failpoint("gateway.delivered.before")
            done = (lambda: self._delivered(stream)) if last else None
            self._outbox.tell(stream.cell, messages, stream.observer.traceparent, done)

    def _delivered(self, stream: Stream) -> None:
        failpoint("gateway.delivered.after")
        stream.settled = True
        self._forget_if_settled(stream)

    def _forget_if_settled(self, stream: Stream) -> None:
        """A reader of a complete stream may still wait for Accepted, which has the prompt's length."""
        if stream.settled and (stream.accepted is not None or stream.phase is Phase.FAILED):
            self._forget(stream.request_id)

    def _forget(self, request_id: str) -> None:
        self._streams.pop(request_id, None)
        self._occupied.set()
        self._gone[request_id] = asyncio.get_running_loop().time() + REMEMBERED_S

    def _disown(self, cell: str, row: FrameRow) -> None:
        """A worker computes a request that nobody here waits for."""
        if row.request_id not in self._gone:
            self._forget(row.request_id)
            self._outbox.cancel(cell, row)

    async def _tick_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._occupied.wait()
            now_s = loop.time()
            self._tick(now_s)
            if not self._streams and not self._gone:
                self._occupied.clear()
            await asyncio.sleep(TICK_S)
            if loop.time() - now_s > flow.GATEWAY_SILENCE_S:
                self._doubt_all()

    def _doubt_all(self) -> None:
        """This process was frozen for so long that schedulers took it for dead, and its requests for cancelled."""
        log.warning("was_frozen", requests=len(self._streams))
        for stream in self._streams.values():
            stream.doubt()

    def _tick(self, now_s: float) -> None:
        for stream in tuple(self._streams.values()):
            if now_s >= stream.ticket.deadline_s:
                self.abandon(stream, DeadlineExceeded("the request's deadline has passed"))
                self._forget(stream.request_id)
            for choice, resend in stream.repairs(now_s):
                task = asyncio.create_task(self._repair(stream, choice, resend))
                self._repairing.add(task)
                task.add_done_callback(self._repairing.discard)
        while self._gone and next(iter(self._gone.values())) <= now_s:
            del self._gone[next(iter(self._gone))]

    async def _repair(self, stream: Stream, choice: Choice, resend: Resend) -> None:
        self._metrics.of(stream.request.model).repairs.inc()
        stream.observer.record.repairs += 1
        resent = await self._outbox.ask(stream.cell, resend, stream.observer.traceparent)
        try:
            stream.on_resent(choice, resent, asyncio.get_running_loop().time())
        except HeadraceError as error:
            self._broken(stream, error)
        else:
            self._tell(stream)
