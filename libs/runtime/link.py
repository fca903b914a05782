"""WorkerLink over gRPC: one bidirectional stream per worker, values in, values out.

A worker dials, and `dial_link` returns when its stream is accepted. Sending waits while the peer reads too slowly, so
memory stays bounded. An idle stream costs one ping a keepalive interval.
"""

import asyncio
import contextlib
import hmac
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from libs.contracts import codec
from libs.contracts.errors import ConfigError, MalformedMessage, Unavailable
from libs.contracts.messages import SchedulerMessage, StepResults, WorkerMessage, WorkerReport
from libs.runtime.logs import get_logger

SERVICE = "headrace.v1.WorkerLink"
METHOD = "Attach"
MESSAGE_BYTES_MAX = 64 << 20
KEEPALIVE_MS = 30_000  # finds a broken network path; frozen peers are found by the protocol's own rules
KEEPALIVE_TIMEOUT_MS = 10_000
DIAL_TIMEOUT_S = 5.0
STOP_GRACE_S = 0.1  # links never end by themselves
HANDLER_END_S = 5.0  # a handler that goes on for longer after its worker left is cancelled

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),  # 0 is no limit: a link may be idle for days
)
_SERVER_OPTIONS = (
    *_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),  # else an idle worker's pings end its link
)
_CLIENT_OPTIONS = (
    *_OPTIONS,
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new dial must not inherit the back-off of an earlier one
)

_ACCEPTED = "headrace-link"  # in the server's initial metadata: an answer without it is a refusal on its way
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs
_BROKEN: tuple[type[Exception], ...] = (
    grpc.aio.BaseError,
    grpc.RpcError,
    asyncio.InvalidStateError,
)

log = get_logger("link")


class LinkLost(Unavailable):
    """The link ended, or none could be opened; look up the cell and dial again."""


class LinkRefused(ConfigError):
    """The scheduler will never accept this worker; its message says why."""


class LinkSession:
    """The scheduler's side of one worker's stream."""

    def __init__(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        self._context = context
        self._sending = asyncio.Lock()

    @property
    def peer(self) -> str:
        return str(self._context.peer())

    async def receive(self) -> AsyncIterator[WorkerReport]:
        """What the worker sends, until its link is closed; results that travelled together come one by one.

        Malformed messages are logged and skipped.
        """
        while True:
            payload = await self._context.read()
            if payload is _EOF:
                return
            try:
                message = codec.decode_in("WorkerMessage", payload)
            except MalformedMessage as error:
                log.warning("malformed_message", peer=self.peer, reason=error.message)
                continue
            for each in message.results if isinstance(message, StepResults) else (message,):
                yield each

    async def send(self, message: SchedulerMessage) -> None:
        """Returns when the transport has taken it. Raises LinkLost when the worker is gone."""
        payload = codec.encode_in("SchedulerMessage", message)
        async with self._sending:
            try:
                await self._context.write(payload)
            except _BROKEN as error:
                raise LinkLost("the worker is gone") from error

    async def refuse(self, reason: str, *, retry: bool = False) -> None:
        """End the stream from within its handler: for good, or (`retry`) until the worker has looked up the cell."""
        code = grpc.StatusCode.UNAVAILABLE if retry else grpc.StatusCode.FAILED_PRECONDITION
        await self._context.abort(code, reason)


class LinkClient:
    """The worker's side of its stream."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._sending = asyncio.Lock()

    async def send(self, message: WorkerMessage) -> None:
        """Returns when the transport has taken it. Raises LinkLost or LinkRefused."""
        payload = codec.encode_in("WorkerMessage", message)
        async with self._sending:
            try:
                await self._call.write(payload)
            except _BROKEN as error:
                raise await self._ending() from error

    async def receive(self) -> AsyncIterator[SchedulerMessage]:
        """What the scheduler sends. Ends by LinkLost or LinkRefused, never by itself."""
        while True:
            try:
                payload = await self._call.read()
            except grpc.RpcError as error:
                raise await self._ending() from error
            if payload is _EOF:
                raise await self._ending()
            try:
                yield codec.decode_in("SchedulerMessage", payload)
            except MalformedMessage as error:
                log.warning("malformed_message", reason=error.message)

    async def finish(self) -> None:
        """Say no more, and return once the scheduler has read it all: a link that is cut may lose the last words."""
        with contextlib.suppress(*_BROKEN):
            await self._call.done_writing()
            await self._call.code()

    async def _ending(self) -> LinkLost | LinkRefused:
        code, details = await self._call.code(), await self._call.details()
        return _ending(code, details)


@asynccontextmanager
async def serve_link(
    address: str, token: str, handler: Callable[[LinkSession], Coroutine[Any, Any, None]]
) -> AsyncIterator[int]:
    """Serve WorkerLink on host:port (port 0: a free one); yields the bound port.

    `handler` runs once per worker that shows `token`; its return ends that worker's stream. Raises ConfigError when the
    address cannot be bound.
    """
    if not token:
        raise ConfigError("the link needs a token")
    expected = f"Bearer {token}".encode()

    async def attach(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        if not hmac.compare_digest(_authorization(context), expected):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing link token")
        await context.send_initial_metadata(((_ACCEPTED, "1"),))
        await _run_apart(handler(LinkSession(context)))

    server = grpc.aio.server(options=_SERVER_OPTIONS)
    method = grpc.stream_stream_rpc_method_handler(attach)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: method}),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}") from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(STOP_GRACE_S)


def own_address() -> str:
    """The address that this host's name stands for; in a container, where the others reach it. Raises ValueError."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise ValueError("this host's name has no address") from error


@asynccontextmanager
async def dial_link(address: str, token: str) -> AsyncIterator[LinkClient]:
    """Open a worker's stream to its scheduler at host:port.

    Raises LinkLost when nobody answers within seconds, LinkRefused when the token is wrong.
    """
    async with grpc.aio.insecure_channel(address, options=_CLIENT_OPTIONS) as channel:
        attach: Any = channel.stream_stream(f"/{SERVICE}/{METHOD}")  # type: ignore[call-arg]  # no serializers: bytes
        call = attach(metadata=(("authorization", f"Bearer {token}"),))
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                accepted = _ACCEPTED in dict(await call.initial_metadata())
        except TimeoutError as error:
            call.cancel()
            raise LinkLost(f"no answer within {DIAL_TIMEOUT_S:g} s") from error
        if not accepted:
            raise _ending(await call.code(), await call.details())
        try:
            yield LinkClient(call)
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                call.cancel()


async def _run_apart(handling: Coroutine[Any, Any, None]) -> None:
    """Run a handler to its end. When the worker leaves, gRPC cancels its own task; the handler sees its receive end."""
    task = asyncio.create_task(handling)
    try:
        await asyncio.shield(task)
    except LinkLost:
        log.debug("link_lost")
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=HANDLER_END_S)
        task.cancel()
        raise


def _authorization(context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            return value if isinstance(value, bytes) else value.encode()
    return b""


def _ending(code: grpc.StatusCode, details: str | None) -> LinkLost | LinkRefused:
    if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAUTHENTICATED):
        return LinkRefused(details or "refused")
    if code is grpc.StatusCode.OK:
        return LinkLost("closed by the scheduler")
    return LinkLost(f"{code.name.lower()}: {details or 'no reason given'}")
