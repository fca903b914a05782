"""A TCP proxy that misbehaves on demand: slow, jittery, throttled, slicing, silent one way or both, cut off, reset.

Bytes are late, never lost or reordered: that is what TCP makes of a bad network. A packet that is lost comes when it is
sent again, and whatever was sent after it, in whatever order it arrived, is kept from the reader until then. A silent
way holds what it has, a connection's end included, until it is healed; so one side may go on for long after the other
has given up.
"""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

READ_BYTES = 64 << 10
RETRANSMIT_S = 0.2  # the shortest after which Linux sends a packet again that nobody has confirmed
HELD_CHUNKS = 64  # per connection and way; beyond it the sender is made to wait

Piece = tuple[float, bytes]  # when it is due, on the loop's clock; no bytes is the end


class Way:
    """One direction of all connections. Changes count for what is read from then on, silence at once."""

    def __init__(self) -> None:
        self.latency_s = self.jitter_s = 0.0
        self.loss = 0.0  # share of the slices, 0 … 1
        self.bytes_per_s = float("inf")
        self.slice_bytes = READ_BYTES
        self.cut_after_bytes: int | None = None  # then that connection is reset, and there is no cut any more
        self.passed_bytes = 0
        self._talks = asyncio.Event()
        self._talks.set()

    def silence(self) -> None:
        self._talks.clear()

    def heal(self) -> None:
        self.latency_s = self.jitter_s = self.loss = 0.0
        self.bytes_per_s, self.slice_bytes, self.cut_after_bytes = float("inf"), READ_BYTES, None
        self._talks.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the end has been passed on. Raises ExceptionGroup when the connection breaks."""
        held: asyncio.Queue[Piece] = asyncio.Queue(HELD_CHUNKS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take_in(reader, held))
            tasks.create_task(self._put_out(held, writer))

    async def _take_in(self, reader: asyncio.StreamReader, held: "asyncio.Queue[Piece]") -> None:
        loop, due_s, chunk = asyncio.get_running_loop(), 0.0, b"to begin with"
        while chunk:
            chunk = await reader.read(self.slice_bytes)
            lost_s = RETRANSMIT_S * (random.random() < self.loss)
            due_s = max(due_s, loop.time() + self.latency_s + random.uniform(0, self.jitter_s) + lost_s)
            due_s += len(chunk) / self.bytes_per_s
            await held.put((due_s, chunk))

    async def _put_out(self, held: "asyncio.Queue[Piece]", writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s, chunk = await held.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await self._talks.wait()
            if not chunk:
                writer.write_eof()
                return
            if self.cut_after_bytes is not None:
                chunk = chunk[: self.cut_after_bytes]
                self.cut_after_bytes -= len(chunk)
            self.passed_bytes += len(chunk)
            writer.write(chunk)
            await writer.drain()
            if self.cut_after_bytes == 0:
                self.cut_after_bytes = None
                raise ConnectionResetError


class Proxy:
    """`up` is the way from clients to the server, `down` the way back."""

    def __init__(self, target: str) -> None:
        """`target` is scheme://host:port, or unix:///path."""
        self.up, self.down = Way(), Way()
        self.refuses = False  # a new connection is reset at once
        self.port = 0
        self._target = urlsplit(target)
        self._writers: set[asyncio.StreamWriter] = set()

    def silence(self) -> None:
        self.up.silence()
        self.down.silence()

    def heal(self) -> None:
        self.refuses = False
        self.up.heal()
        self.down.heal()

    def reset(self) -> None:
        """Break every open connection at both ends."""
        for writer in self._writers:
            _reset(writer)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = {writer}
        try:
            if self.refuses:
                raise ConnectionRefusedError
            server_reader, server_writer = await self._dial()
            writers.add(server_writer)
            self._writers |= writers
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.up.carry(reader, server_writer))
                tasks.create_task(self.down.carry(server_reader, writer))
        except (OSError, ExceptionGroup):
            for end in writers:
                _reset(end)
        finally:
            self._writers -= writers
            for end in writers:
                end.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.scheme == "unix":
            return await asyncio.open_unix_connection(self._target.path)
        return await asyncio.open_connection(self._target.hostname, self._target.port)


@asynccontextmanager
async def proxy(target: str) -> AsyncIterator[Proxy]:
    """A proxy in front of `target` on a loopback port of its own, until the block ends."""
    through, connections = Proxy(target), set[asyncio.Task[None]]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(through.connection(reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    through.port = server.sockets[0].getsockname()[1]
    try:
        yield through
    finally:
        server.close()
        for connection in tuple(connections):
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it so that the peer sees a reset instead of an end."""
    sock = writer.get_extra_info("socket")
    if sock.family != socket.AF_UNIX and not writer.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
