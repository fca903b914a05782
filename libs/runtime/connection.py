"""The NATS client's connection: a first connect that fails fast and quietly, then reconnecting for ever."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import nats.errors
from nats.aio.client import Client, Server
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from libs.contracts import flow
from libs.contracts.errors import ConfigError, Unavailable
from libs.runtime.cancellation import heed
from libs.runtime.logs import get_logger

CONNECT_TIMEOUT_S = 1
FIRST_CONNECT_S = 3.0
FIRST_CONNECT_PAUSE_S = 0.1
SETTLE_TIMEOUT_S = 2
PING_INTERVAL_S = 5  # a broker that answers nothing for two of these is left
WRITE_AHEAD_BYTES = 1 << 20  # what a socket may lag behind before messages queue, bounded, in the library
RECONNECT_PAUSE_S = (0.05, 1.0)  # doubles from the first to the second, each with jitter

Listener = Callable[[bytes, Mapping[str, str] | None], None]  # payload, headers

log = get_logger("bus")


class PersistentClient(Client):
    """Reconnects after any error that the broker reports; the library closes for good on those it does not know.

    Whoever is cancelled while it connects, flushes or asks ends: the library may forget it.

    A token's way through the broker is on every stream's path, so both its ends skip the library's queues and the
    rounds of the event loop that these take: `write_now` and `hear_at_once`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[int, Listener] = {}

    async def connect(self, *args: Any, **options: Any) -> None:
        await heed(super().connect(*args, **options))

    async def flush(self, *args: Any, **options: Any) -> None:
        await heed(super().flush(*args, **options))

    async def request(self, *args: Any, **options: Any) -> Msg:
        return await heed(super().request(*args, **options))

    def write_now(self, subject: str, payload: bytes) -> bool:
        """Hand a message to the socket if nothing waits before it; False when it must take the library's way."""
        if not self.is_connected or self._pending or len(payload) > self._max_payload:
            return False
        writer = getattr(self._transport, "_io_writer", None)
        if writer is None or writer.transport.get_write_buffer_size() > WRITE_AHEAD_BYTES:
            return False
        writer.write(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload))
        return True

    def hear_at_once(self, subscription: Subscription, listener: Listener) -> None:
        """From now on call `listener` while the message is read, instead of queueing it for the subscription's task."""
        self._listeners[subscription._id] = listener

    def hear_no_more(self, subscription: Subscription) -> None:
        self._listeners.pop(subscription._id, None)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        listener, subscription = self._listeners.get(sid), self._subs.get(sid)
        if listener is None or subscription is None or subscription.pending_msgs:  # what came before is told first
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        parsed = await self._process_headers(headers) if headers else None
        listener(data, parsed)

    async def settle(self) -> None:
        """Return once the broker has seen all that was sent before; at once while it is away."""
        for _ in range(2):  # the library's first ping may overtake commands that still wait in its buffer
            if self.is_connected:
                await self.flush(SETTLE_TIMEOUT_S)

    async def close(self) -> None:
        """End for good, as the library does, but for a cancellation that nobody asked for.

        A reconnect that it cancels while the old connection closes takes that connection's waiter with it.
        """
        try:
            await super().close()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

    async def _process_pong(self) -> None:
        """A pong that nobody waits for any more must not end the loop that reads."""
        while self._pongs and self._pongs[0].done():
            del self._pongs[0]
        await super()._process_pong()

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg.lower():
            await super()._process_err(err_msg)
        else:
            await self._process_op_err(nats.errors.Error(err_msg))


class Callbacks:
    """What the NATS client calls when something happens by itself."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.on_reconnect: set[Callable[[], None]] = set()
        self.first_connect = True
        self.closing = False

    async def error(self, error: Exception) -> None:
        if self.first_connect and "authorization" in str(error).lower():
            raise ConfigError("the broker refuses the user or the password") from error  # leaves Client.connect
        if isinstance(error, nats.errors.SlowConsumerError):
            self.counts["slow_consumer"] += 1
            log.warning("slow_consumer", subject=error.subject)
        elif "permissions violation" in str(error).lower():
            self.counts["permission_refused"] += 1
            log.error("permission_refused", reason=str(error))
        else:
            log.debug("broker_error", reason=str(error))

    async def disconnected(self) -> None:
        if not self.closing:
            log.warning("broker_lost")

    async def reconnected(self) -> None:
        log.info("broker_back")
        for callback in tuple(self.on_reconnect):
            callback()


async def first_connect(
    client: Client, servers: list[str], service: str, credentials: tuple[str, str], callbacks: Callbacks
) -> None:
    """Connect `client` for good. Raises ConfigError for refused credentials, Unavailable when nobody answers."""
    user, password = credentials
    is_kept = False
    try:
        async with asyncio.timeout(FIRST_CONNECT_S):  # the library has one limit for this and all later attempts: none
            await client.connect(
                servers,
                name=service,
                user=user or None,
                password=password or None,
                inbox_prefix=flow.inbox_prefix(service),
                error_cb=callbacks.error,
                disconnected_cb=callbacks.disconnected,
                reconnected_cb=callbacks.reconnected,
                reconnect_to_server_handler=_next_server,
                connect_timeout=CONNECT_TIMEOUT_S,
                max_reconnect_attempts=-1,
                reconnect_time_wait=FIRST_CONNECT_PAUSE_S,  # type: ignore[arg-type]  # declared int, used as seconds
                ping_interval=PING_INTERVAL_S,
            )
        is_kept = True
    except TimeoutError as error:
        raise Unavailable(f"no broker answers at {', '.join(_address(server) for server in servers)}") from error
    except nats.errors.Error as error:
        raise ConfigError("not the address of a broker") from error
    finally:
        callbacks.first_connect = False
        if not is_kept:
            callbacks.closing = True
            await client.close()


def _next_server(servers: list[Server], info: dict[str, object]) -> tuple[Server, float]:
    """Where to reconnect to, after how many seconds."""
    server = random.choice(servers)
    shortest_s, longest_s = RECONNECT_PAUSE_S
    return server, random.uniform(0.5, 1) * min(longest_s, shortest_s * 2 ** min(server.reconnects, 10))


def _address(url: str) -> str:
    return url.rpartition("@")[2].removeprefix("nats://")
