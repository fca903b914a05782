"""Links: sessions become events, commands go out in order. No socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from libs.contracts import messages
from libs.contracts.messages import (
    Ack,
    Finished,
    SchedulerMessage,
    WorkerMessage,
)
from libs.runtime.link import LinkSession
from services.scheduler.events import (
    Event,
    LinkClosed,
    Refuse,
    Send,
)
from services.scheduler.rpc import Links
from services.scheduler.state import DECODE
from tests.fakes.engine import FakePool
from tests.fakes.worker import FakeWorker

FINISHED = Finished("r", 1, 0, 4, "stop", 1, "c0")


async def rounds(condition: Callable[[], bool]) -> None:
    """Let tasks run until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


@dataclass
class FakeSession:
    """A worker's stream: `incoming` is what it sends, None is its end."""

    incoming: asyncio.Queue[WorkerMessage | None] = field(default_factory=asyncio.Queue)
    sent: list[SchedulerMessage] = field(default_factory=list)
    refused: list[tuple[str, bool]] = field(default_factory=list)
    peer: str = "worker"

    async def receive(self) -> AsyncIterator[WorkerMessage]:
        while (message := await self.incoming.get()) is not None:
            yield message

    async def send(self, message: SchedulerMessage) -> None:
        self.sent.append(message)

    async def refuse(self, reason: str, *, retry: bool = False) -> None:
        self.refused.append((reason, retry))
        raise asyncio.CancelledError


def linked(links: Links, session: FakeSession) -> Awaitable[None]:
    return asyncio.ensure_future(links.serve(cast(LinkSession, session)))


async def test_a_link_carries_events_in_and_orders_out_until_it_closes() -> None:
    """Its end is an event as well; without a link orders go nowhere."""
    posted = list[Event]()
    links, session = Links(posted.append), FakeSession()
    hello = FakeWorker("w", DECODE, FakePool(4)).residents.hello()
    began = messages.Began(hello.incarnation, 1, 1)
    serving = linked(links, session)
    for message in (hello, began):
        session.incoming.put_nowait(message)
    await rounds(lambda: len(posted) == 2)
    links.carry(Send(hello.incarnation, Ack(1, 3)))
    session.incoming.put_nowait(None)
    await serving
    links.carry(Send(hello.incarnation, Ack(1, 4)))
    assert posted == [hello, began, LinkClosed(hello.incarnation)]
    assert session.sent == [Ack(1, 3, hello.incarnation)]


async def test_a_new_link_of_the_same_worker_replaces_the_old_one() -> None:
    """The old one's end is then no news."""
    posted = list[Event]()
    links, old, new = Links(posted.append), FakeSession(), FakeSession()
    hello = FakeWorker("w", DECODE, FakePool(4)).residents.hello()
    ends = []
    for session in (old, new):
        ends.append(linked(links, session))
        session.incoming.put_nowait(hello)
        await rounds(lambda: len(posted) == len(ends))
    old.incoming.put_nowait(None)
    await ends[0]
    links.carry(Send(hello.incarnation, Ack(1, 1)))
    await rounds(lambda: bool(new.sent))
    assert posted == [hello, hello] and not old.sent


async def test_a_refused_worker_hears_why() -> None:
    """And so does one that does not begin with Hello."""
    links, session, rude = Links(lambda event: None), FakeSession(), FakeSession()
    hello = FakeWorker("w", DECODE, FakePool(4)).residents.hello()
    serving = linked(links, session)
    session.incoming.put_nowait(hello)
    await rounds(lambda: session.incoming.empty())
    links.carry(Refuse(hello.incarnation, "another model"))
    with pytest.raises(asyncio.CancelledError):
        await serving
    rude.incoming.put_nowait(messages.Began("x", 1, 1))
    with pytest.raises(asyncio.CancelledError):
        await linked(links, rude)
    assert session.refused == [("another model", False)] and rude.refused
