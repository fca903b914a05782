"""The one door to NATS: publish, request, serve, work queues, and the directory of cells.

It reconnects for ever and quietly. What core NATS loses meanwhile, the protocol repairs; callers see at most a typed
error. Nothing here batches: a message is written to the socket at once, or in the event loop's next round.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from libs.contracts import flow
from libs.contracts.errors import MalformedMessage, Unavailable
from libs.contracts.messages import CellRecord
from libs.runtime import cells, work_queue
from libs.runtime.cells import CellDirectory
from libs.runtime.connection import Callbacks, PersistentClient, first_connect
from libs.runtime.logs import get_logger
from libs.runtime.work_queue import Work

DECLARE_RETRY_S = 0.5
API_TIMEOUT_S = 2.0  # for JetStream's answers

Handler = Callable[[bytes, str], None]
Responder = Callable[[bytes, str], Awaitable[bytes]]
OnMessage = Callable[[Msg], Awaitable[None]]

log = get_logger("bus")


class NoResponder(Unavailable):
    """Nobody listens on the subject of a request."""


class RequestTimeout(Unavailable):
    """A request was not answered in time; it may or may not have been received."""


class Subscription:
    """Interest in one subject, until `close`."""

    def __init__(self, inner: NatsSubscription, forget: Callable[[NatsSubscription], None]) -> None:
        self.inner = inner
        self._forget = forget

    async def close(self) -> None:
        with contextlib.suppress(nats.errors.Error):
            await self.inner.unsubscribe()
        self._forget(self.inner)


class Bus:
    """A service's connection to NATS. `counts` tells what was dropped, by event name."""

    def __init__(self, client: PersistentClient, callbacks: Callbacks) -> None:
        self._client = client
        self._js = client.jetstream(timeout=API_TIMEOUT_S)
        self._callbacks = callbacks
        self._answering: set[asyncio.Task[None]] = set()
        self._declarations: dict[str, Callable[[], Awaitable[None]]] = {}
        self._declaring: asyncio.Task[None] | None = None
        self.counts = callbacks.counts

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, *, service: str, user: str, password: str) -> AsyncIterator["Bus"]:
        """Connect as one of flow.PERMISSIONS' services; `url` may list several brokers, separated by commas.

        Raises ConfigError when the broker refuses the credentials, Unavailable when none answers within seconds.
        """
        client, callbacks = PersistentClient(), Callbacks()
        await first_connect(client, url.split(","), service, (user, password), callbacks)
        bus = cls(client, callbacks)
        callbacks.on_reconnect.add(bus._declare_again)
        try:
            yield bus
        finally:
            await bus._close()

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected)

    @property
    def max_payload_bytes(self) -> int:
        return int(self._client.max_payload)

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call it whenever the connection came back: the broker may have lost what it held."""
        self._callbacks.on_reconnect.add(callback)

    def new_inbox(self) -> str:
        """A subject of our own, to which everybody may publish."""
        return str(self._client.new_inbox())

    async def publish(self, subject: str, payload: bytes, *, traceparent: str = "") -> None:
        """Send at most once. While the broker is away a bounded number of bytes is kept, the rest dropped and counted.

        Raises ValueError when the payload exceeds max_payload_bytes.
        """
        if not traceparent and self._client.write_now(subject, payload):
            return
        try:
            await self._client.publish(subject, payload, headers=_headers(traceparent))
        except nats.errors.OutboundBufferLimitError:
            self.counts["publish_dropped"] += 1
        except nats.errors.MaxPayloadError as error:
            raise ValueError(f"{len(payload)} bytes exceed the broker's limit of {self.max_payload_bytes}") from error
        except nats.errors.ConnectionClosedError as error:
            raise Unavailable("the connection to the broker is closed") from error

    async def request(self, subject: str, payload: bytes, *, timeout_s: float, traceparent: str = "") -> bytes:
        """Send and await the one answer. Raises NoResponder, RequestTimeout (also while the broker is away)."""
        try:
            answer = await self._client.request(subject, payload, timeout=timeout_s, headers=_headers(traceparent))
        except nats.errors.NoRespondersError as error:
            raise NoResponder(f"nobody answers {subject}") from error
        except (nats.errors.TimeoutError, nats.errors.OutboundBufferLimitError) as error:
            raise RequestTimeout(f"{subject} was not answered within {timeout_s:g} s") from error
        except nats.errors.ConnectionClosedError as error:
            raise Unavailable("the connection to the broker is closed") from error
        return bytes(answer.data)

    async def scatter(self, subject: str, payload: bytes, *, answers: int, within_s: float) -> list[bytes]:
        """Ask everybody who serves `subject`: the first `answers` answers, fewer when the time is over before."""
        inbox, arrived = self._client.new_inbox(), asyncio.Queue[bytes]()
        subscription = await self.subscribe(inbox, lambda answer, traceparent: arrived.put_nowait(answer))
        gathered: list[bytes] = []
        try:
            await self._client.publish(subject, payload, reply=inbox)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    while len(gathered) < answers:
                        gathered.append(await arrived.get())
        finally:
            await subscription.close()
        return [answer for answer in gathered if answer]  # the broker's "nobody listens" is an empty one

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Call handler(payload, traceparent) for each message, one after the other, in the order of arrival."""

        def deliver(payload: bytes, headers: Mapping[str, str] | None) -> None:
            try:
                handler(payload, _traceparent(headers))
            except MalformedMessage as error:
                self._malformed(subject, error)
            except Exception as error:
                log.error("handler_failed", exc_info=error, subject=subject)

        async def deliver_queued(message: Msg) -> None:
            deliver(message.data, message.headers)

        subscription = await self._subscribe(subject, deliver_queued)
        self._client.hear_at_once(subscription.inner, deliver)
        return subscription

    async def serve(self, subject: str, handler: Responder, *, queue: str = "") -> Subscription:
        """Answer each request with handler(payload, traceparent), concurrently; one member of a `queue` takes each.

        A malformed request is counted, logged and not answered, and so is one whose handler fails.
        """

        async def answer(message: Msg) -> None:
            try:
                payload = await handler(message.data, _traceparent(message.headers))
                if message.reply:
                    await self.publish(message.reply, payload)
            except MalformedMessage as error:
                self._malformed(subject, error)
            except Exception as error:
                log.error("handler_failed", exc_info=error, subject=subject)

        async def start(message: Msg) -> None:
            task = asyncio.create_task(answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

        return await self._subscribe(subject, start, queue)

    async def declare_work_queue(self, stream: str, subjects: Sequence[str], *, max_messages: int) -> None:
        """Create or update a JetStream work queue: file storage, full means refused, duplicates dropped for 120 s.

        Done again after each reconnect, as are the other declarations: the broker may have lost its store.
        """
        await self._declare(stream, lambda: work_queue.declare(self._js, stream, subjects, max_messages=max_messages))

    async def declare_log(self, stream: str, subjects: Sequence[str], *, max_messages: int) -> None:
        """Create or update a JetStream stream that keeps the newest messages, for people to read."""
        await self._declare(
            stream, lambda: work_queue.declare_log(self._js, stream, subjects, max_messages=max_messages)
        )

    async def enqueue(self, subject: str, payload: bytes, *, message_id: str, traceparent: str = "") -> None:
        """Store in the work queue of `subject`; a message id seen within 120 s is stored once.

        Raises Overloaded when the queue is full, Unavailable when there is none or the broker does not answer,
        InvalidRequest when the payload exceeds max_payload_bytes.
        """
        if not self.connected:
            raise Unavailable("the broker is away")
        await work_queue.enqueue(self._js, subject, payload, message_id, _headers(traceparent))

    def work(
        self,
        stream: str,
        *,
        consumer: str,
        filter_subject: str,
        ack_wait_s: float,
        max_ack_pending: int,
        durable: bool = True,
    ) -> AsyncGenerator[Work]:
        """Messages of a work queue, one at a time: the next is asked for when the caller comes back for it.

        Waits for a stream that does not exist yet, and goes on by itself after the broker's restart. Other consumers
        of `filter_subject` are deleted at the start, but for one of a higher term: the newest claimant owns it. Raises
        Fenced when another has it, or has taken it over since. Leave it through contextlib.aclosing, so that the broker
        hears of it.
        """
        order = work_queue.Order(stream, consumer, filter_subject, ack_wait_s, max_ack_pending, durable)
        return work_queue.pull(self._client, self._js, order, self._callbacks.on_reconnect)

    async def cells(self) -> CellDirectory:
        """The directory of cells, kept current until the bus is closed; empty while no scheduler declared it."""
        directory = CellDirectory(self._js)
        await self._subscribe(flow.CELLS_CHANGED, directory.on_changed)
        self._callbacks.on_reconnect.add(directory.refresh_soon)
        await directory.refresh()
        return directory

    async def declare_cells(self) -> None:
        """Create the bucket of cell records."""
        await self._declare(flow.CELLS_BUCKET, lambda: cells.declare(self._js))

    async def claim_term(self, record: CellRecord, *, after: int | None = None) -> CellRecord:
        """Store `record` under the cell's next term, with what the last one told of its blocks. Returns what is stored.

        Raises Fenced when `after` is given and the cell has a higher term by now: somebody else was faster.
        """
        claimed = await cells.claim_term(self._js, record, after)
        self._keep_cell(claimed)
        return claimed

    async def put_cell(self, record: CellRecord) -> None:
        """Replace the record of the same term. Raises Fenced when the cell has another term by now."""
        await cells.put(self._js, record)
        self._keep_cell(record)

    def _keep_cell(self, record: CellRecord) -> None:
        self._declarations[flow.cell_key(record.model, record.cell)] = lambda: cells.restore(self._js, record)

    async def _declare(self, name: str, declare: Callable[[], Awaitable[None]]) -> None:
        await declare()
        self._declarations[name] = declare

    def _declare_again(self) -> None:
        if self._declaring is not None:
            self._declaring.cancel()
        self._declaring = asyncio.create_task(self._declare_until_done())

    async def _declare_until_done(self) -> None:
        for declare in tuple(self._declarations.values()):
            while True:
                try:
                    await declare()
                    break
                except Unavailable:
                    await asyncio.sleep(DECLARE_RETRY_S)

    async def _subscribe(self, subject: str, deliver: OnMessage, queue: str = "") -> Subscription:
        try:
            inner = await self._client.subscribe(subject, queue, cb=deliver)
            await self._client.settle()  # a request sent after this returns must find us
        except nats.errors.Error as error:
            raise Unavailable(f"cannot subscribe to {subject}") from error
        return Subscription(inner, self._client.hear_no_more)

    def _malformed(self, subject: str, error: MalformedMessage) -> None:
        self.counts["malformed_message"] += 1
        log.warning("malformed_message", subject=subject, reason=error.message)

    async def _close(self) -> None:
        self._callbacks.closing = True
        for task in (*self._answering, *([self._declaring] if self._declaring else [])):
            task.cancel()
        with contextlib.suppress(nats.errors.Error, OSError, asyncio.TimeoutError):
            await self._client.settle()
        await self._client.close()


def _headers(traceparent: str) -> dict[str, str] | None:
    return {flow.TRACEPARENT_HEADER: traceparent} if traceparent else None


def _traceparent(headers: Mapping[str, str] | None) -> str:
    return headers.get(flow.TRACEPARENT_HEADER, "") if headers else ""
