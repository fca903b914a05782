"""The HTTP server's own limits, with an app of the test behind it: connections, heads that do not come, readers that do
not read.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.gateway import server
from services.gateway.config import Config
from services.gateway.reply import Message, Receive, Scope, Send
from tests.integration.servers import free_port

pytestmark = pytest.mark.integration

SOON_S = 10.0
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
ENDLESS = b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n"


class App:
    """/ answers at once; /endless sends for as long as somebody takes it, and notes when nobody does."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.left = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/endless":
            watching = asyncio.create_task(self._watch(receive))
            while not self.left.is_set():
                await self._part(send, bytes(10_000), more=True)
            await watching
        await self._part(send, b"done", more=False)
        self.ended.set()

    async def _part(self, send: Send, body: bytes, *, more: bool) -> None:
        message: Message = {"type": "http.response.body", "body": body, "more_body": more}
        await send(message)
        self.sent_bytes += len(body)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


@asynccontextmanager
async def served(**settings: object) -> AsyncIterator[tuple[App, int]]:
    app, port = App(), free_port()
    config = Config(model="m", model_dir=Path(), max_model_len=8, port=port, **settings)  # type: ignore[arg-type]
    async with server.serving(app, config):
        yield app, port


async def answered(port: int, payload: bytes) -> bytes:
    """All that comes back until the server closes, or the first answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(payload)
    try:
        return await asyncio.wait_for(reader.read(1000), SOON_S)
    finally:
        writer.close()


async def test_many_idle_connections_hold_up_nobody() -> None:
    """Far more than the backlog: those that say nothing, and those that began and say nothing more."""
    async with served() as (_, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(1500)]
        for _, writer in idle[::2]:
            writer.write(GET[:20])

        assert b"200 OK" in await asyncio.wait_for(answered(port, GET), SOON_S)

        for _, writer in idle:
            writer.close()


async def test_connections_beyond_the_cap_wait_for_a_place() -> None:
    """They are served when others leave, not refused."""
    async with served(max_connections=4) as (_, port):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for reader, writer in kept:
            writer.write(GET)
            assert b"200 OK" in await asyncio.wait_for(reader.read(1000), SOON_S)
        late = asyncio.create_task(answered(port, GET))
        done, _ = await asyncio.wait((late,), timeout=0.2)
        assert not done

        kept[0][1].close()

        assert b"200 OK" in await late
        for _, writer in kept:
            writer.close()


async def test_a_head_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, or the next one of a connection that has had its answer."""
    monkeypatch.setattr(server, "HEAD_TIMEOUT_S", 1)
    async with served() as (_, port):
        assert await answered(port, GET[:20]) == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert (await asyncio.wait_for(reader.read(1000), SOON_S)).endswith(b"done")
        assert await asyncio.wait_for(reader.read(1000), SOON_S) == b""
        writer.close()


@pytest.mark.parametrize(
    "payload", [GET[:-2] + b"A: " + bytes(20_000), GET[:-2] + b"Content-Length: x\r\n\r\n", b"\0\r\n\r\n"]
)
async def test_what_is_no_request_is_refused_by_its_status(payload: bytes) -> None:
    """Without a body: this is decided where no app is asked."""
    async with served() as (_, port):
        head, _, body = (await answered(port, payload)).partition(b"\r\n\r\n")

    assert head.split()[1] in (b"431", b"400") and b"connection: close" in head and body == b""


async def test_a_reader_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for it is bounded, and after a while it counts as gone."""
    monkeypatch.setattr(server, "UNREAD_TIMEOUT_S", 1)
    async with served() as (app, port):
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.connect(("127.0.0.1", port))
            lazy.sendall(ENDLESS)

            await asyncio.wait_for(app.left.wait(), SOON_S)
            await asyncio.wait_for(app.ended.wait(), SOON_S)

    assert 0 < app.sent_bytes < 2_000_000
