"""The chaos proxy itself: what it does to a connection, and that it never changes a byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.fakes.proxy import RETRANSMIT_S, Proxy, proxy

pytestmark = pytest.mark.integration

SOON_S = 5.0
MESSAGE = bytes(range(256)) * 400

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echo() -> AsyncIterator[Proxy]:
    """A proxy before a server that sends back what it gets."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, proxy(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}") as through:
        yield through


@asynccontextmanager
async def dialled(through: Proxy) -> AsyncIterator[Ends]:
    reader, writer = await asyncio.open_connection("127.0.0.1", through.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def echoed(ends: Ends, message: bytes) -> float:
    """Seconds until it came back whole."""
    reader, writer = ends
    started_s = asyncio.get_running_loop().time()
    writer.write(message)
    async with asyncio.timeout(SOON_S):
        assert await reader.readexactly(len(message)) == message
    return asyncio.get_running_loop().time() - started_s


async def test_it_passes_everything_on_and_the_end_as_well() -> None:
    """In small slices too."""
    async with echo() as through, dialled(through) as (reader, writer):
        through.up.slice_bytes = through.down.slice_bytes = 100
        await echoed((reader, writer), MESSAGE)
        writer.write_eof()

        assert await asyncio.wait_for(reader.read(), SOON_S) == b""
        assert through.up.passed_bytes == through.down.passed_bytes == len(MESSAGE)


async def test_latency_is_paid_once_and_a_throttle_by_the_byte() -> None:
    """Messages behind each other do not add up their latencies; jitter does not reorder."""
    async with echo() as through, dialled(through) as ends:
        through.up.latency_s, through.up.jitter_s, through.up.slice_bytes = 0.1, 0.02, 1000
        assert 0.1 <= await echoed(ends, MESSAGE) < 0.3
        through.heal()
        through.up.bytes_per_s = 4 * len(MESSAGE)
        assert 0.25 <= await echoed(ends, MESSAGE) < 1.0


async def test_what_is_lost_comes_late_and_holds_up_what_follows() -> None:
    """Nothing is missing, and nothing out of order: as TCP sends it again."""
    async with echo() as through, dialled(through) as ends:
        through.up.loss, through.up.slice_bytes = 1.0, 1000
        assert await echoed(ends, MESSAGE) >= RETRANSMIT_S


@pytest.mark.parametrize("one_way", [True, False])
async def test_a_silent_way_holds_and_a_healed_one_delivers(one_way: bool) -> None:
    """Nothing comes while it lasts, nothing is missing afterwards."""
    async with echo() as through, dialled(through) as (reader, writer):
        await echoed((reader, writer), b"before")
        (through.down if one_way else through).silence()
        writer.write(MESSAGE)
        waiting = asyncio.ensure_future(reader.readexactly(len(MESSAGE)))
        done, _ = await asyncio.wait((waiting,), timeout=0.1)
        assert not done
        assert (through.up.passed_bytes > len(b"before")) == one_way

        through.heal()

        assert await asyncio.wait_for(waiting, SOON_S) == MESSAGE


async def test_a_reset_and_a_cut_break_connections() -> None:
    """The one at once, the other after so many bytes; new connections work again, unless they are refused."""
    async with echo() as through:
        async with dialled(through) as (reader, writer):
            await echoed((reader, writer), b"before")
            through.reset()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), SOON_S)
        async with dialled(through) as (reader, writer):
            through.down.cut_after_bytes = 1000
            passed_bytes = through.down.passed_bytes
            writer.write(MESSAGE)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await asyncio.wait_for(reader.readexactly(1001), SOON_S)
            assert through.down.passed_bytes == passed_bytes + 1000
        async with dialled(through) as ends:
            await echoed(ends, MESSAGE)
        through.refuses = True
        async with dialled(through) as (reader, _):
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), SOON_S)
