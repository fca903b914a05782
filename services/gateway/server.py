"""Runs the ASGI app under granian inside this process's event loop. See docs/adr/0002-parts-tried.md."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from libs.contracts.errors import ConfigError
from services.gateway.reply import Receive, Scope, Send

MAX_HEADER_BYTES = 16 << 10
STOP_TIMEOUT_S = 1.0  # a client that does not read its answer would hold the stop back without limit
START_TIMEOUT_S = 5.0
START_POLL_S = 0.01


@asynccontextmanager
async def serving(app: Callable[[Scope, Receive, Send], Awaitable[None]], host: str, port: int) -> AsyncIterator[None]:
    """Accept connections until the block ends. Raises ConfigError when the port cannot be had."""
    try:
        _refuse_taken_port(host, port)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    server = Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.auto,
        websockets=False,
        log_enabled=False,
        http1_settings=HTTP1Settings(max_buffer_size=MAX_HEADER_BYTES),
        http2_settings=HTTP2Settings(max_headers_size=MAX_HEADER_BYTES),
    )
    task = asyncio.create_task(server.serve())
    try:
        await _accepting(host, port, task)
        yield
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        with suppress(TimeoutError):
            await asyncio.wait_for(task, STOP_TIMEOUT_S)


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
