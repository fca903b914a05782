"""What others have to answer is repeated until they do. No broker."""

import asyncio

import pytest

from libs.contracts import codec, flow
from libs.contracts.messages import (
    ChoiceLog,
    Finished,
    Gone,
    Incarnations,
    Kill,
    Known,
    ListIncarnations,
    LogQuery,
    Logs,
    RequestLog,
)
from services.scheduler import outbox
from services.scheduler.background import Background
from services.scheduler.events import (
    AckRequest,
    Answered,
    Ask,
    AskHost,
    Event,
    KillWorker,
    Listed,
    Logged,
    Tell,
)
from services.scheduler.outbox import Outbox
from tests.fakes.bus import FakeBus

TRACE = "trace-of-r"
FINISHED = Finished("r", 1, 0, 4, "stop", 1, "c0")


async def test_an_end_is_told_until_the_gateway_answers() -> None:
    """Its answer says whether it still holds the request."""
    bus, posted, background = FakeBus(), list[Event](), Background()
    heard: list[bytes] = []

    async def gateway(payload: bytes, traceparent: str) -> bytes:
        assert traceparent == TRACE
        heard.append(payload)
        return codec.encode(Known(False))

    await bus.serve(flow.replies_subject("g"), gateway)
    Outbox(bus.as_bus(), posted.append, background, cell="c0", term=2).tell(Tell("g", FINISHED, TRACE))
    await background.settle(1)
    assert posted == [Answered("r", live=False)]
    assert codec.decode_in("RepliesMessage", heard[0]) == FINISHED


async def test_nothing_is_told_about_an_acknowledged_request() -> None:
    """Nobody is there to answer, so it would be repeated for ever."""
    background = Background()
    mine = Outbox(FakeBus().as_bus(), lambda event: None, background, cell="c0", term=2)
    mine.tell(Tell("g", FINISHED))
    await asyncio.sleep(0)
    mine.forget(AckRequest("r", "cancelled"))
    async with asyncio.timeout(1):
        await background.settle(10)


async def test_a_log_is_asked_of_its_gateway() -> None:
    """What it answers about the request is the event."""
    bus, posted, background = FakeBus(), list[Event](), Background()
    query, held = LogQuery(("r",), 2, "c0"), RequestLog("r", True, (ChoiceLog(0, (5, 6), "", 1),))

    async def gateway(payload: bytes, traceparent: str) -> bytes:
        assert (codec.decode_in("RepliesMessage", payload), traceparent) == (query, TRACE)
        return codec.encode(Logs((held,)))

    await bus.serve(flow.replies_subject("g"), gateway)
    Outbox(bus.as_bus(), posted.append, background, cell="c0", term=2).ask(Ask("g", "r", query, TRACE))
    await background.settle(1)
    assert posted == [Logged(held)]


async def test_a_host_is_asked_who_is_there() -> None:
    """Its answer is the event."""
    bus, posted, background = FakeBus(), list[Event](), Background()

    async def agent(payload: bytes, traceparent: str) -> bytes:
        assert codec.decode_in("HostMessage", payload) == ListIncarnations(2, "c0")
        return codec.encode_in("HostReply", Incarnations(("life",)))

    await bus.serve(flow.host_subject("host-1"), agent)
    Outbox(bus.as_bus(), posted.append, background, cell="c0", term=2).ask_host(AskHost("host-1"))
    await background.settle(1)
    assert posted == [Listed("host-1", ("life",))]


@pytest.mark.parametrize("needs_agents", [False, True])
async def test_in_a_first_term_a_host_may_have_no_agent(needs_agents: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody was there before; a later term waits until somebody says who is there."""
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.001)
    posted, background = list[Event](), Background()
    Outbox(FakeBus().as_bus(), posted.append, background, cell="c0", term=2, needs_agents=needs_agents).ask_host(
        AskHost("host-1")
    )
    await background.settle(0.1)
    assert posted == [] if needs_agents else [Listed("host-1", ())]


async def test_a_kill_is_asked_of_the_workers_host() -> None:
    """Its answer is the event that the worker is gone."""
    bus, posted, background = FakeBus(), list[Event](), Background()

    async def agent(payload: bytes, traceparent: str) -> bytes:
        assert codec.decode_in("HostMessage", payload) == Kill("life", 2, "c0")
        return codec.encode_in("HostReply", Gone("life"))

    await bus.serve(flow.host_subject("host-1"), agent)
    Outbox(bus.as_bus(), posted.append, background, cell="c0", term=2).kill(KillWorker("host-1", "life"))
    await background.settle(1)
    assert posted == [Gone("life")]
