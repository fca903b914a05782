"""Connect nats-py with a limit, and keep one JetStream pull of one message open through a broker's restart."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import TimeoutError as NatsTimeoutError

HEARTBEAT_S, PULL_EXPIRES_S = 0.5, 30.0
IDLE_HEARTBEAT, EXPIRED, RETRY_S = "100", "408", 0.1
OnReconnect = Callable[[], Coroutine[object, object, None]]
log = logging.getLogger(__name__)


async def connect(url: str, *, limit_s: float, on_reconnect: OnReconnect | None = None) -> Client:
    """Connect within limit_s or raise TimeoutError; once connected, reconnect for ever, ten times a second."""

    async def on_error(error: Exception) -> None:
        log.debug("nats: %r", error)

    client = Client()
    try:
        async with asyncio.timeout(limit_s):
            await client.connect(
                url,
                error_cb=on_error,
                reconnected_cb=on_reconnect,
                connect_timeout=1,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,  # type: ignore[arg-type]  # seconds; it only sleeps on it
                ping_interval=2,
                max_outstanding_pings=2,
            )
    except BaseException:
        await client.close()
        raise
    return client


class StandingPull:
    """Keeps one pull of one message open at the broker while its reader waits, and none while the reader works."""

    def __init__(self, client: Client, stream: str, durable: str) -> None:
        self._client = client
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._inbox = client.new_inbox()
        self._deliver = ""
        self._generation = 0
        self._waiting = False
        self.renewals: list[str] = []

    async def messages(self) -> AsyncIterator[Msg]:
        """Yield each message; the next pull is asked for when the caller comes back for more."""
        replies = await self._client.subscribe(f"{self._inbox}.*")
        while True:
            await self._ask()
            self._waiting = True
            message = await self._answer(replies)
            self._waiting = False
            if message is not None:
                yield message

    async def renew(self) -> None:
        """Ask again after a reconnect: the broker has forgotten the pull of the old connection."""
        if self._waiting:
            self.renewals.append("reconnected")
            await self._ask()

    async def _ask(self) -> None:
        self._generation += 1
        self._deliver = f"{self._inbox}.{self._generation}"
        order = {"batch": 1, "expires": int(PULL_EXPIRES_S * 1e9), "idle_heartbeat": int(HEARTBEAT_S * 1e9)}
        await self._client.publish(self._next, json.dumps(order).encode(), self._deliver)

    async def _answer(self, replies: Subscription) -> Msg | None:
        """The message, or None when the pull has ended or its heartbeat stays away and it must be asked for again."""
        while True:
            try:
                message = await replies.next_msg(timeout=2 * HEARTBEAT_S)
            except NatsTimeoutError:
                self.renewals.append("silent")
                return None
            status = None if message.reply else (message.headers or {}).get("Status")
            if status is None:
                return message  # also one that answers an older pull: it counts as delivered
            if status != IDLE_HEARTBEAT and message.subject == self._deliver:
                self.renewals.append(status)
                if status != EXPIRED:  # 503, nobody answers for the consumer, comes at once and would come again
                    await asyncio.sleep(RETRY_S)
                return None
