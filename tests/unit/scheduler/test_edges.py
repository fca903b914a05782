"""What surrounds the core: its loop, the queue, control requests, the outbox, links. No broker, no socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from libs.contracts import codec, flow, messages
from libs.contracts.errors import Fenced
from libs.contracts.messages import (
    Ack,
    Alive,
    Cancel,
    Done,
    Failed,
    Finished,
    Gone,
    Kill,
    Known,
    SchedulerMessage,
    Sequence,
    WorkerMessage,
)
from libs.runtime.link import LinkSession
from services.scheduler.background import Background, run_beside
from services.scheduler.event_log import EventLog
from services.scheduler.events import (
    AckRequest,
    Answered,
    Arrived,
    Asked,
    Event,
    KillWorker,
    LinkClosed,
    Ordered,
    Refuse,
    Reply,
    Send,
    Tell,
)
from services.scheduler.intake import Intake
from services.scheduler.loop import Clock, Loop
from services.scheduler.outbox import Outbox
from services.scheduler.rpc import Links
from services.scheduler.state import DECODE, Gateway, Policy, State
from tests.fakes.bus import FakeBus
from tests.fakes.engine import FakePool
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import params, prompt

FINISHED = Finished("r", 1, 0, 4, "stop", 1, "c0")


def sequence(request_id: str = "r") -> Sequence:
    return messages.Sequence(request_id, 1, "g", "m", "t", prompt(20), (), params(), 1, 9_000_000_000_000)


def new_state() -> State:
    return State(Policy(cell="c0", model="m"), 1)


async def rounds(condition: Callable[[], bool]) -> None:
    """Let tasks run until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


@dataclass
class StoredWork:
    """A message of a work queue."""

    payload: bytes
    traceparent: str = ""
    deliveries: int = 1
    stored_at: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(hours=1))
    acks: int = 0

    async def ack(self) -> None:
        self.acks += 1


class QueueBus(FakeBus):
    """A bus whose work queue holds what the test says, and then ends by Fenced."""

    def __init__(self, *works: StoredWork) -> None:
        super().__init__()
        self._works = works
        self.asked: dict[str, Any] = {}

    async def work(self, stream: str, **order: Any) -> AsyncIterator[StoredWork]:
        self.asked = {"stream": stream, **order}
        for work in self._works:
            yield work
        raise Fenced("another consumer took over")


class SteppedClock(Clock):
    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s


# The loop


async def test_the_loop_decides_when_something_happened_and_carries_it_out() -> None:
    """Events posted before it runs are not lost; commands go to who is responsible for them."""
    loop, stop, replies = Loop(Clock()), asyncio.Event(), list[Reply]()
    loop.post(Asked(5, Cancel("r", 0)))
    log = EventLog(Policy("c0", "m"), 1)
    running = asyncio.create_task(loop.run(new_state(), log, {Reply: replies.append}, until=stop))
    await rounds(lambda: bool(replies))
    assert replies == [Reply(5, Done(known=False))]
    stop.set()
    await running
    assert [turn.events for turn in log.last if turn.events] == [(Asked(5, Cancel("r", 0)),)]


async def test_the_loop_wakes_when_a_time_has_come() -> None:
    """Without any event: a deadline is one."""
    clock, stop, told = SteppedClock(), asyncio.Event(), list[Tell]()
    loop = Loop(clock)
    late = messages.Sequence("r", 1, "g", "m", "t", prompt(20), (), params(), 1, 100_500)
    loop.post(Arrived(late, ""))
    state = new_state()
    running = asyncio.create_task(loop.run(state, EventLog(state.policy, 1), {Tell: told.append}, until=stop))
    await rounds(lambda: bool(state.requests))
    assert told == []
    clock.time_s = 100.6
    loop.post(Alive("g"))
    await rounds(lambda: bool(told))
    assert isinstance(told[0].message, Failed)
    stop.set()
    await running


async def test_an_error_beside_the_main_work_ends_it() -> None:
    """A scheduler that lost its queue must not go on."""

    async def forever() -> None:
        await asyncio.Event().wait()

    async def fails() -> None:
        raise Fenced("a newer term")

    with pytest.raises(Fenced):
        await run_beside(forever(), forever(), fails())


# The queue and control requests


def intake_of(bus: FakeBus, state: State) -> tuple[Intake, list[Event], Background]:
    posted, background = list[Event](), Background()
    return Intake(bus.as_bus(), state, posted.append, background), posted, background


async def test_a_sequence_arrives_once_and_all_its_messages_are_acknowledged_together() -> None:
    """A second delivery is not a second request; nonsense leaves the queue at once."""
    works = [StoredWork(codec.encode(sequence())), StoredWork(codec.encode(sequence())), StoredWork(b"\xff")]
    bus = QueueBus(*works)
    intake, posted, background = intake_of(bus, new_state())
    with pytest.raises(Fenced):
        await intake.pull(max_pending=7)
    assert posted == [Arrived(sequence(), "")]
    assert (bus.asked["consumer"], bus.asked["max_ack_pending"]) == ("term-1", 7)
    assert [work.acks for work in works] == [0, 0, 1]
    intake.ordered(Ordered("r", (("no_blocks", 0.5),)))
    intake.acknowledge(AckRequest("r", "delivered"))
    await background.settle(1)
    assert [work.acks for work in works] == [1, 1, 1]


async def test_a_control_request_is_answered_with_its_own_reply() -> None:
    """Whatever order the replies come in."""
    bus = FakeBus()
    intake, posted, _ = intake_of(bus, new_state())
    await intake.listen()
    payloads = [codec.encode_in("ControlMessage", Cancel(name, 0)) for name in ("a", "b")]
    asking = [
        asyncio.create_task(bus.request(flow.control_subject("c0"), payload, timeout_s=1)) for payload in payloads
    ]
    await rounds(lambda: len(posted) == 2)
    for event in reversed(posted):
        assert isinstance(event, Asked) and isinstance(event.message, Cancel)
        intake.reply(Reply(event.ticket, Done(known=event.message.request_id == "a")))
    assert [codec.decode(Done, answer).known for answer in await asyncio.gather(*asking)] == [True, False]


async def test_a_heartbeat_counts_only_while_its_gateway_has_requests() -> None:
    """Else an idle cell would wake four times a second for each of them."""
    bus, state = FakeBus(), new_state()
    intake, posted, _ = intake_of(bus, state)
    await intake.listen()
    state.gateways["here"] = Gateway(0.0)
    for gateway in ("here", "elsewhere"):
        await bus.publish(flow.ALIVE_SUBJECTS, codec.encode(Alive(gateway)))
    assert posted == [Alive("here")]


# The outbox


async def test_an_end_is_told_until_the_gateway_answers() -> None:
    """Its answer says whether it still holds the request."""
    bus, posted, background = FakeBus(), list[Event](), Background()
    heard: list[bytes] = []

    async def gateway(payload: bytes, traceparent: str) -> bytes:
        heard.append(payload)
        return codec.encode(Known(False))

    await bus.serve(flow.replies_subject("g"), gateway)
    Outbox(bus.as_bus(), posted.append, background).tell(Tell("g", FINISHED))
    await background.settle(1)
    assert posted == [Answered("r", live=False)]
    assert codec.decode_in("RepliesMessage", heard[0]) == FINISHED


async def test_nothing_is_told_about_an_acknowledged_request() -> None:
    """Nobody is there to answer, so it would be repeated for ever."""
    background = Background()
    outbox = Outbox(FakeBus().as_bus(), lambda event: None, background)
    outbox.tell(Tell("g", FINISHED))
    await asyncio.sleep(0)
    outbox.forget(AckRequest("r", "cancelled"))
    async with asyncio.timeout(1):
        await background.settle(10)


async def test_a_kill_is_asked_of_the_workers_host() -> None:
    """Its answer is the event that the worker is gone."""
    bus, posted, background = FakeBus(), list[Event](), Background()

    async def agent(payload: bytes, traceparent: str) -> bytes:
        assert codec.decode_in("HostMessage", payload) == Kill("life")
        return codec.encode_in("HostReply", Gone("life"))

    await bus.serve(flow.host_subject("host-1"), agent)
    Outbox(bus.as_bus(), posted.append, background).kill(KillWorker("host-1", "life"))
    await background.settle(1)
    assert posted == [Gone("life")]


# Links


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
    assert session.sent == [Ack(1, 3)]


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
