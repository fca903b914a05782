"""WorkerLink over real gRPC on loopback: values both ways, who is let in, and how a link ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from libs.contracts.errors import ConfigError
from libs.contracts.messages import Ack, Began, Delta, FencedOff, Resync, SchedulerMessage, StepResult, WorkerMessage
from libs.runtime import link
from libs.runtime.link import LinkClient, LinkLost, LinkRefused, LinkSession, dial_link, serve_link

pytestmark = pytest.mark.integration

TOKEN = "link-token"
ANY_PORT = "127.0.0.1:0"
SOON_S = 5.0
INCARNATION = "0" * 32


def began(version: int) -> Began:
    return Began(INCARNATION, 1, version)


async def test_values_cross_in_order_both_ways() -> None:
    """What either side sends arrives as the same values, in the order of sending."""
    received: list[object] = []

    async def schedule(session: LinkSession) -> None:
        async for message in session.receive():
            received.append(message)
            await session.send(Ack(1, len(received)))

    async with serve_link(ANY_PORT, TOKEN, schedule) as port, dial_link(f"127.0.0.1:{port}", TOKEN) as link:
        sent: list[WorkerMessage] = [
            began(1),
            Resync(INCARNATION, 1, 1),
            StepResult(INCARNATION, 1, 1, 7, (), (), (), 0, 3, 10, 20),
        ]
        for message in sent:
            await link.send(message)
        answers = link.receive()

        assert [await anext(answers) for _ in sent] == [Ack(1, 1), Ack(1, 2), Ack(1, 3)]
        assert received == sent


async def test_a_large_order_crosses() -> None:
    """A delta far beyond gRPC's usual 4 MiB arrives whole."""
    delta = Delta(1, 1, removed=tuple(range(1 << 20)))

    async def schedule(session: LinkSession) -> None:
        await session.send(delta)

    async with serve_link(ANY_PORT, TOKEN, schedule) as port, dial_link(f"127.0.0.1:{port}", TOKEN) as link:
        assert await anext(link.receive()) == delta


@pytest.mark.parametrize("token", ["", "link-token2", "link-toke"])
async def test_a_wrong_token_is_refused_for_good(token: str) -> None:
    """The handler never runs, and the worker is told not to try again."""
    sessions: list[LinkSession] = []

    async def schedule(session: LinkSession) -> None:
        sessions.append(session)

    async with serve_link(ANY_PORT, TOKEN, schedule) as port:
        with pytest.raises(LinkRefused):
            async with dial_link(f"127.0.0.1:{port}", token):
                pass
    assert sessions == []


async def test_no_link_is_served_without_a_token() -> None:
    """An empty token would let anybody in."""
    with pytest.raises(ConfigError):
        async with serve_link(ANY_PORT, "", lambda session: asyncio.sleep(0)):
            pass


@pytest.mark.parametrize(("retry", "kind"), [(False, LinkRefused), (True, LinkLost)])
async def test_a_refused_worker_learns_why(retry: bool, kind: type[Exception]) -> None:
    """For good (another layout) or for now (not the leader), each with its reason."""

    async def schedule(session: LinkSession) -> None:
        await anext(aiter(session.receive()))
        await session.refuse("another layout", retry=retry)

    async with serve_link(ANY_PORT, TOKEN, schedule) as port, dial_link(f"127.0.0.1:{port}", TOKEN) as link:
        await link.send(began(1))

        with pytest.raises(kind, match="another layout"):
            await anext(link.receive())


async def test_nobody_listening_is_a_lost_link(unused_port: int) -> None:
    """The dial fails at once instead of waiting for somebody to come."""
    with pytest.raises(LinkLost):
        async with asyncio.timeout(SOON_S), dial_link(f"127.0.0.1:{unused_port}", TOKEN):
            pass


async def test_a_dial_after_a_failed_one_is_not_held_back(unused_port: int) -> None:
    """A scheduler that comes up right after a failed dial is reached by the next."""
    with suppress(LinkLost):
        async with dial_link(f"127.0.0.1:{unused_port}", TOKEN):
            pass

    async def schedule(session: LinkSession) -> None:
        await session.send(Ack(1, 1))

    async with (
        serve_link(f"127.0.0.1:{unused_port}", TOKEN, schedule),
        asyncio.timeout(0.5),
        dial_link(f"127.0.0.1:{unused_port}", TOKEN) as link,
    ):
        assert await anext(link.receive()) == Ack(1, 1)


async def test_a_port_in_use_is_a_config_error() -> None:
    """Two schedulers never share a port in silence."""
    async with serve_link(ANY_PORT, TOKEN, lambda session: asyncio.sleep(0)) as port:
        with pytest.raises(ConfigError):
            async with serve_link(f"127.0.0.1:{port}", TOKEN, lambda session: asyncio.sleep(0)):
                pass


async def test_a_worker_that_leaves_ends_its_session() -> None:
    """The scheduler's receive ends, and sending to the worker is a lost link."""
    ended, outcome = asyncio.Event(), list[type[BaseException]]()

    async def schedule(session: LinkSession) -> None:
        async for _ in session.receive():
            pass
        try:
            await session.send(Ack(1, 1))
        except LinkLost:
            outcome.append(LinkLost)
        finally:
            ended.set()

    async with serve_link(ANY_PORT, TOKEN, schedule) as port:
        async with dial_link(f"127.0.0.1:{port}", TOKEN) as link:
            await link.send(began(1))
        await asyncio.wait_for(ended.wait(), SOON_S)

    assert outcome == [LinkLost]


@pytest.mark.parametrize("use", [LinkClient.receive, LinkClient.send])
async def test_a_scheduler_that_stops_is_a_lost_link(use: Callable[..., object]) -> None:
    """Whatever the worker does with the link then, it hears of it."""

    async def schedule(session: LinkSession) -> None:
        async for _ in session.receive():
            pass

    async with serve_link(ANY_PORT, TOKEN, schedule) as port:
        dialled = dial_link(f"127.0.0.1:{port}", TOKEN)
        link = await dialled.__aenter__()
    try:
        with pytest.raises(LinkLost):
            async with asyncio.timeout(SOON_S):
                while True:
                    await (anext(link.receive()) if use is LinkClient.receive else link.send(began(1)))
    finally:
        await dialled.__aexit__(None, None, None)


async def test_sending_waits_for_a_peer_that_does_not_read() -> None:
    """A slow reader holds the sender back after a bounded number of bytes, and loses nothing."""
    delta, count, reading = Delta(1, 1, removed=tuple(range(1 << 17))), 64, asyncio.Event()
    sent = 0

    async def schedule(session: LinkSession) -> None:
        nonlocal sent
        for _ in range(count):
            await session.send(delta)
            sent += 1

    async with serve_link(ANY_PORT, TOKEN, schedule) as port, dial_link(f"127.0.0.1:{port}", TOKEN) as link:
        with suppress(TimeoutError):
            await asyncio.wait_for(reading.wait(), 0.3)  # nobody reads for as long as the sender could need
        assert sent < count

        received = [message async for message in take(link, count)]

        assert len(received) == count and all(message == delta for message in received)


async def test_a_side_may_send_from_many_tasks() -> None:
    """Messages sent at the same time, each too large to be gone at once, arrive whole."""
    reason, count = "r" * (1 << 20), 20

    async def schedule(session: LinkSession) -> None:
        await asyncio.gather(*(session.send(FencedOff(term, reason)) for term in range(count)))

    async with serve_link(ANY_PORT, TOKEN, schedule) as port, dial_link(f"127.0.0.1:{port}", TOKEN) as link:
        received = [message async for message in take(link, count)]

    assert sorted(received, key=lambda message: message.term) == [FencedOff(term, reason) for term in range(count)]


async def test_a_malformed_message_is_skipped() -> None:
    """Bytes that are no message of this version do not end the link."""

    async def schedule(session: LinkSession) -> None:
        message = await anext(aiter(session.receive()))
        assert isinstance(message, Began)
        await session.send(Ack(1, message.version))

    async with serve_link(ANY_PORT, TOKEN, schedule) as port, dial_link(f"127.0.0.1:{port}", TOKEN) as link:
        await link._call.write(b"\xff\xff")
        await link.send(began(9))

        assert await anext(link.receive()) == Ack(1, 9)


async def take(link: LinkClient, count: int) -> AsyncIterator[SchedulerMessage]:
    """The next `count` messages."""
    messages = link.receive()
    for _ in range(count):
        yield await anext(messages)


def test_the_transport_knows_every_option_it_is_given() -> None:
    """gRPC ignores a misspelt option without a word; its library holds the name of each that it reads."""
    names = {name for name, _ in (*link._SERVER_OPTIONS, *link._CLIENT_OPTIONS)}
    library = find_spec("grpc._cython.cygrpc")
    assert library is not None and library.origin is not None
    binary = Path(library.origin).read_bytes()

    assert [name for name in sorted(names) if name.encode() not in binary] == []
