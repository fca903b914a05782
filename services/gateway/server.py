"""Runs the ASGI app under granian inside this process's event loop. See docs/adr/0002-parts-tried.md.

Limits that an app cannot see are set here: how many connections, how long a head may take, and how long a client may
take none of its answer. Granian counts connections, open ones included, and leaves the one too many in the backlog.
"""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from libs.contracts.errors import ConfigError
from services.gateway.config import Config
from services.gateway.reply import Receive, Scope, Send

MAX_HEADER_BYTES = 16 << 10
HEAD_TIMEOUT_S = 10  # for a request's head, and between two requests of a connection
UNREAD_TIMEOUT_S = 20  # the system ends a connection whose other end takes nothing, or is gone
KEEP_ALIVE_S = (10, 5, 2)  # idle, then between probes, how many: for the end of a client that left no trace
SEND_BUFFER_BYTES = 128 << 10  # per connection in the system; more would only hide a slow reader
BACKLOG = 1024
OTHER_FILES = 128  # what this process opens beside its clients' connections
STOP_TIMEOUT_S = 1.0  # a client that does not read its answer would hold the stop back without limit
START_TIMEOUT_S = 5.0
START_POLL_S = 0.01


class _Server(Server):
    """Granian with our options on its listening socket; the system gives them to each accepted one."""

    def _init_shared_socket(self) -> None:
        super()._init_shared_socket()  # type: ignore[no-untyped-call]
        spec: Any = self._ssp
        holder = spec.build()
        self._shd, self._sfd, self._ssp = holder, holder.get_fd(), None
        with socket.socket(fileno=os.dup(holder.get_fd())) as listening:
            _set_options(listening)


@asynccontextmanager
async def serving(app: Callable[[Scope, Receive, Send], Awaitable[None]], config: Config) -> AsyncIterator[None]:
    """Accept connections until the block ends. Raises ConfigError when the port cannot be had."""
    host, port = config.host, config.port
    try:
        _refuse_taken_port(host, port)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    server = _Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.auto,
        websockets=True,
        backlog=BACKLOG,
        backpressure=_connections(config.max_connections),
        log_enabled=False,
        http1_settings=HTTP1Settings(max_buffer_size=MAX_HEADER_BYTES, header_read_timeout=HEAD_TIMEOUT_S * 1000),
        http2_settings=HTTP2Settings(max_headers_size=MAX_HEADER_BYTES, keep_alive_interval=KEEP_ALIVE_S[0] * 1000),
    )
    task = asyncio.create_task(server.serve())
    try:
        await _accepting(host, port, task)
        yield
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await task


def _connections(wanted: int) -> int:
    """As many as are wanted and the limit on open files allows, once that is as high as it may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return wanted if hard == resource.RLIM_INFINITY else max(1, min(wanted, hard - OTHER_FILES))


def _set_options(listening: socket.socket) -> None:
    idle_s, between_s, probes = KEEP_ALIVE_S
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, idle_s),
        (socket.TCP_KEEPINTVL, between_s),
        (socket.TCP_KEEPCNT, probes),
        (socket.TCP_USER_TIMEOUT, UNREAD_TIMEOUT_S * 1000),
    ):
        listening.setsockopt(socket.IPPROTO_TCP, option, value)


def _refuse_taken_port(host: str, port: int) -> None:
    """Two granian processes would share a port in silence."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


async def _accepting(host: str, port: int, task: asyncio.Task[None]) -> None:
    """Wait for the first connection to succeed."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    async with asyncio.timeout(START_TIMEOUT_S):
        while not task.done():
            with suppress(OSError):
                _, writer = await asyncio.open_connection(target, port)
                writer.close()
                return
            await asyncio.sleep(START_POLL_S)
    await task
    raise ConfigError(f"cannot listen on {host} port {port}")
