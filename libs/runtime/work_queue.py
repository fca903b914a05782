"""JetStream work queues: declaring one, storing into it, and a standing pull of one message at a time.

A pull stays open at the broker for PULL_EXPIRES_S, so an idle consumer costs two messages in that time. It is renewed
when it expires, when the connection came back, and when the broker says that it ended.
"""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, NoStreamResponseError

from libs.contracts import flow
from libs.contracts.errors import Fenced, InvalidRequest, Overloaded, Unavailable
from libs.runtime.acks import Acks
from libs.runtime.logs import get_logger

DUPLICATE_WINDOW_S = 120
ENQUEUE_TIMEOUT_S = 2.0
PULL_EXPIRES_S = 30.0
PULL_GRACE_S = 5.0  # beyond its expiry a pull without any answer is taken for lost
RETRY_S = 0.2
DECLARE_TIMEOUT_S = 1.0  # a question asked just before the broker died is never answered
FENCE_DOUBT_S = 1.0  # a deleted consumer was probably taken over: leave its new owner time to show
TAKE_OVER_TRIES = 20
INACTIVE_S = 300.0  # a consumer that is not durable goes away after this time without a pull

ERR_MAXIMUM_MESSAGES = 10077
ERR_STREAM_NAME_IN_USE = 10058
ERR_NOT_UNIQUE = (10099, 10100)  # a work queue has one consumer per subject

log = get_logger("work_queue")


@dataclass(frozen=True, slots=True)
class Order:
    """What to pull, and as which consumer."""

    stream: str
    consumer: str
    filter_subject: str
    ack_wait_s: float
    max_ack_pending: int
    durable: bool


class Work:
    """One message of a work queue, ours until `ack`, `nak`, or the end of the ack wait."""

    def __init__(self, message: Msg, traceparent: str, acks: Acks) -> None:
        self._message, self._acks = message, acks
        self.payload: bytes = message.data
        self.traceparent = traceparent
        self.deliveries: int = message.metadata.num_delivered or 1
        self.stored_at: datetime = message.metadata.timestamp  # UTC; the same at each delivery

    async def ack(self) -> None:
        """Done: the message leaves the queue. Not awaited at the broker, but said again after a reconnect."""
        await self._acks.say(self._message)

    async def reject(self) -> None:
        """It is no message of ours: it leaves the queue and must not come again."""
        with suppress(nats.errors.Error):
            await self._message.term()

    async def extend(self) -> None:
        """Start the ack wait anew: we are still at it."""
        with suppress(nats.errors.Error):
            await self._message.in_progress()

    async def nak(self, delay_s: float = 0) -> None:
        """Deliver it again, after `delay_s`."""
        with suppress(nats.errors.Error):
            await self._message.nak(delay_s or None)


async def declare(js: JetStreamContext, stream: str, subjects: Sequence[str], *, max_messages: int) -> None:
    config = StreamConfig(
        name=stream,
        subjects=list(subjects),
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_msgs=max_messages,
        duplicate_window=DUPLICATE_WINDOW_S,
    )
    await create_stream(js, config)


async def declare_log(js: JetStreamContext, stream: str, subjects: Sequence[str], *, max_messages: int) -> None:
    config = StreamConfig(
        name=stream,
        subjects=list(subjects),
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_msgs=max_messages,
    )
    await create_stream(js, config)


async def create_stream(js: JetStreamContext, config: StreamConfig) -> None:
    """Create or update. Raises Unavailable when JetStream does not answer or refuses."""
    try:
        try:
            await js.add_stream(config)
        except APIError as error:
            if error.err_code != ERR_STREAM_NAME_IN_USE:
                raise
            await js.update_stream(config)
    except nats.errors.Error as error:
        raise Unavailable(f"cannot declare stream {config.name}: {error}") from error


async def enqueue(
    js: JetStreamContext, subject: str, payload: bytes, message_id: str, headers: dict[str, str] | None
) -> None:
    try:
        await js.publish(
            subject, payload, timeout=ENQUEUE_TIMEOUT_S, headers={"Nats-Msg-Id": message_id, **(headers or {})}
        )
    except APIError as error:
        if error.err_code == ERR_MAXIMUM_MESSAGES:
            raise Overloaded("the queue is full") from error
        raise Unavailable(f"the broker refuses {subject}: {error.description}") from error
    except nats.errors.MaxPayloadError as error:
        raise InvalidRequest(f"{len(payload)} bytes are more than the broker takes") from error
    except NoStreamResponseError as error:
        raise Unavailable(f"no queue for {subject}") from error
    except nats.errors.Error as error:
        raise Unavailable(f"the broker did not confirm {subject}") from error


async def pull(
    client: Client, js: JetStreamContext, order: Order, on_reconnect: set[Callable[[], None]]
) -> AsyncGenerator[Work]:
    """See Bus.work."""
    standing = _StandingPull(client, js, order)
    await standing.open()
    on_reconnect.add(standing.reconnected)
    try:
        while True:
            message = await standing.next()
            if message is not None:
                yield Work(message, (message.headers or {}).get(flow.TRACEPARENT_HEADER, ""), standing.acks)
    finally:
        on_reconnect.discard(standing.reconnected)
        await standing.close()


class _StandingPull:
    """Keeps exactly one pull of one message open at the broker."""

    def __init__(self, client: Client, js: JetStreamContext, order: Order) -> None:
        self._client, self._js, self._order = client, js, order
        self.acks = Acks(client)
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{order.stream}.{order.consumer}"
        self._pull_request = json.dumps({"batch": 1, "expires": int(PULL_EXPIRES_S * 1e9)}).encode()
        self._inbox = client.new_inbox()
        self._number = 0
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()  # None: the connection came back

    async def open(self) -> None:
        async def arrived(message: Msg) -> None:
            self._arrived.put_nowait(message)

        self._replies = await self._client.subscribe(f"{self._inbox}.*", cb=arrived)
        await self._declare(take_over=True)

    def reconnected(self) -> None:
        self._arrived.put_nowait(None)

    async def next(self) -> Msg | None:
        """The next message, or None when the pull ended without one."""
        self._number += 1
        deliver = f"{self._inbox}.{self._number}"
        with suppress(nats.errors.OutboundBufferLimitError):  # the broker is away: asked again when it is back
            await self._client.publish(self._next_subject, self._pull_request, deliver)
        while True:
            try:
                async with asyncio.timeout(PULL_EXPIRES_S + PULL_GRACE_S):
                    message = await self._arrived.get()
            except TimeoutError:
                return None
            if message is None:
                await self._declare(take_over=False)  # its store may be a new one
                return None
            if message.reply:
                return message  # also one that answers an older pull: it is delivered and must not be lost
            if message.subject == deliver and await self._ended(message):
                return None

    async def _ended(self, status: Msg) -> bool:
        headers = status.headers or {}
        code, reason = headers.get("Status", ""), headers.get("Description", "")
        if code == "100":
            return False
        if code not in ("404", "408"):
            log.info("pull_ended", consumer=self._order.consumer, status=code, reason=reason)
            deleted = "deleted" in reason.lower()
            await asyncio.sleep(FENCE_DOUBT_S if deleted else RETRY_S * random.uniform(0.5, 1))
            if deleted or code == "503":
                await self._declare(take_over=False)
        return True

    async def close(self) -> None:
        with suppress(nats.errors.Error):
            await self._replies.unsubscribe()
            while not self._arrived.empty():
                message = self._arrived.get_nowait()
                if message is not None and message.reply:
                    await message.nak()

    async def _declare(self, *, take_over: bool) -> None:
        """Create the consumer, waiting for its stream. Raises Fenced when another has the subject."""
        order = self._order
        config = ConsumerConfig(
            name=order.consumer,
            durable_name=order.consumer if order.durable else None,
            filter_subject=order.filter_subject,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=order.ack_wait_s,
            max_ack_pending=order.max_ack_pending,
            inactive_threshold=None if order.durable else INACTIVE_S,
        )
        taken = 0
        while True:
            try:
                info = await self._js.add_consumer(order.stream, config, timeout=DECLARE_TIMEOUT_S)
                await self.acks.repeat(info.delivered.stream_seq if info.delivered else 0)
                return
            except APIError as error:
                if error.err_code in ERR_NOT_UNIQUE:
                    if not take_over or taken == TAKE_OVER_TRIES:
                        raise Fenced(f"another consumer took over {order.filter_subject}") from error
                    taken += 1
                    await self._delete_others()
                    continue
                log.debug("consumer_refused", stream=order.stream, reason=str(error))
            except nats.errors.ConnectionClosedError as error:
                raise Unavailable("the connection to the broker is closed") from error
            except nats.errors.Error as error:
                log.debug("consumer_not_declared", stream=order.stream, reason=str(error))
            await asyncio.sleep(RETRY_S)

    async def _delete_others(self) -> None:
        """Take the subject over from all but a higher term's consumer. Raises Fenced when there is one."""
        order = self._order
        with suppress(nats.errors.Error):  # the creation that follows shows whether it worked
            for found in await self._js.consumers_info(order.stream):
                if found.config.filter_subject != order.filter_subject or found.name == order.consumer:
                    continue
                if flow.consumer_term(found.name) > flow.consumer_term(order.consumer):
                    raise Fenced(f"{found.name} has {order.filter_subject}")
                log.info("consumer_taken_over", consumer=found.name)
                await self._js.delete_consumer(order.stream, found.name)
