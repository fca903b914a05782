"""What surrounds the core: its loop, the queue, control requests. No broker, no socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.contracts import codec, flow, messages
from libs.contracts.errors import Fenced
from libs.contracts.messages import (
    Alive,
    Cancel,
    Delivered,
    Done,
    Exited,
    Failed,
    Finished,
    Resend,
    Sequence,
    StatusQuery,
    StopAt,
)
from services.scheduler.background import Background, run_beside
from services.scheduler.event_log import EventLog
from services.scheduler.events import (
    AckRequest,
    Arrived,
    Asked,
    Event,
    Ordered,
    Reply,
    Tell,
)
from services.scheduler.intake import Intake, Superseded
from services.scheduler.loop import Clock, Loop
from services.scheduler.state import Gateway, Policy, State
from tests.fakes.bus import FakeBus
from tests.unit.scheduler.cell import params, prompt

FINISHED = Finished("r", 1, 0, 4, "stop", 1, "c0")


def sequence(request_id: str = "r") -> Sequence:
    return messages.Sequence(request_id, 1, "g", "m", "t", prompt(20), (), params(), 1, 9_000_000_000_000)


def new_state() -> State:
    return State(Policy(cell="c0", model="m"), 1)


async def rounds(condition: Callable[[], bool]) -> None:
    """Let tasks run until the condition holds."""
    for count in range(1000):
        if condition():
            return
        await asyncio.sleep(0 if count < 500 else 0.001)
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

    async def reject(self) -> None:
        await self.ack()


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

    def set_back(self, seconds: float) -> None:
        self.time_s -= seconds


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


async def test_time_in_which_nothing_ran_here_does_not_count() -> None:
    """A scheduler that was frozen must not take for silent whom it did not hear."""
    clock, stop, taken = SteppedClock(), asyncio.Event(), list[object]()
    loop, state = Loop(clock), new_state()
    loop.post(Arrived(sequence(), ""))
    running = asyncio.create_task(loop.run(state, EventLog(state.policy, 1), {Reply: taken.append}, until=stop))
    await rounds(lambda: bool(state.requests))
    clock.time_s += 60.0
    loop.post(Alive("g"))
    loop.post(Asked(1, StatusQuery()))
    await rounds(lambda: bool(taken))
    assert "r" in state.requests and clock.time_s == 101.0
    stop.set()
    await running


@pytest.mark.parametrize("frozen_s", [1.01, 1.4, 60.0])
@pytest.mark.parametrize("in_a_turn", [False, True])
async def test_a_thawed_scheduler_hears_first_what_was_said_meanwhile(frozen_s: float, in_a_turn: bool) -> None:
    """A beat that waits in the socket is read a few rounds after the alarm: nobody is given up before."""
    clock, stop, taken = SteppedClock(), asyncio.Event(), list[object]()
    loop, state = Loop(clock), new_state()

    def carry(reply: Reply) -> None:
        if in_a_turn and not taken:
            clock.time_s += frozen_s
        taken.append(reply)

    loop.post(Arrived(sequence(), ""))
    running = asyncio.create_task(loop.run(state, EventLog(state.policy, 1), {Reply: carry}, until=stop))
    await rounds(lambda: bool(state.requests))
    loop.post(Asked(1, StatusQuery()))
    if not in_a_turn:
        clock.time_s += frozen_s
    asyncio.get_running_loop().call_later(0.002, loop.post, Alive("g"))
    await asyncio.sleep(0.02)
    loop.post(Asked(2, StatusQuery()))
    await rounds(lambda: len(taken) == 2)
    assert "r" in state.requests
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
    intake = Intake(bus.as_bus(), state, posted.append, background, datetime.now(UTC), lambda: None)
    return intake, posted, background


async def test_a_sequence_arrives_once_and_all_its_messages_are_acknowledged_together() -> None:
    """A second delivery is not a second request; nonsense leaves the queue at once."""
    works = [StoredWork(codec.encode(sequence())), StoredWork(codec.encode(sequence())), StoredWork(b"\xff")]
    bus = QueueBus(*works)
    intake, posted, background = intake_of(bus, new_state())
    with pytest.raises(Fenced):
        await intake.pull(max_pending=7)
    assert posted == [Arrived(sequence(), "")]
    assert (bus.asked["consumer"], bus.asked["max_ack_pending"]) == ("m-c0-term-1", 7)
    assert [work.acks for work in works] == [0, 0, 1]
    intake.ordered(Ordered("r", (("no_blocks", 0.5),)))
    intake.acknowledge(AckRequest("r", "delivered"))
    await background.settle(1)
    assert [work.acks for work in works] == [1, 1, 1]


async def test_a_sequence_stored_before_the_term_is_told_from_a_new_one() -> None:
    """By the time at which the broker stored it."""
    before = datetime.now(UTC) - timedelta(seconds=5)
    works = [StoredWork(codec.encode(sequence("old")), stored_at=before), StoredWork(codec.encode(sequence("new")))]
    intake, posted, _ = intake_of(QueueBus(*works), new_state())
    with pytest.raises(Fenced):
        await intake.pull(max_pending=7)
    assert [event.is_older for event in posted if isinstance(event, Arrived)] == [True, False]


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


async def test_who_knows_of_a_higher_term_is_not_answered() -> None:
    """Another leads by then: it is to answer. This one looks whether its own term is over."""
    bus, state, looks = FakeBus(), new_state(), list[int]()
    posted, background = list[Event](), Background()
    look = lambda: looks.append(state.term)  # noqa: E731
    intake = Intake(bus.as_bus(), state, posted.append, background, datetime.now(UTC), look)
    await intake.listen()
    for message in (
        Cancel("a", 0, 2),
        StopAt("a", 0, 1, 2),
        Resend("a", 0, 1, 2),
        Delivered("a", (1,), 2),
        Exited("i", 2),
    ):
        with pytest.raises(Superseded):
            await bus.request(flow.control_subject("c0"), codec.encode_in("ControlMessage", message), timeout_s=1)
    assert not posted and len(looks) == state.counts["superseded_control"] == 5
    asking = [
        asyncio.create_task(
            bus.request(flow.control_subject("c0"), codec.encode_in("ControlMessage", message), timeout_s=1)
        )
        for message in (Cancel("a", 0, 1), Cancel("b", 0), StatusQuery())
    ]
    await rounds(lambda: len(posted) == 3)
    for task in asking:
        task.cancel()


async def test_a_heartbeat_counts_only_while_its_gateway_has_requests() -> None:
    """Else an idle cell would wake four times a second for each of them."""
    bus, state = FakeBus(), new_state()
    intake, posted, _ = intake_of(bus, state)
    await intake.listen()
    state.gateways["here"] = Gateway(0.0)
    for gateway in ("here", "elsewhere"):
        await bus.publish(flow.ALIVE_SUBJECTS, codec.encode(Alive(gateway)))
    assert posted == [Alive("here")]
