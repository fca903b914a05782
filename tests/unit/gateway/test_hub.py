"""What other services are told about requests, and how lost tokens come back."""

import asyncio
from random import Random

import pytest

from libs.contracts import codec
from libs.contracts.messages import (
    Cancel,
    ChoiceEpoch,
    ChoiceLog,
    Delivered,
    EpochRaised,
    Exited,
    Finished,
    Known,
    LogQuery,
    Logs,
    Request,
    RequestLog,
    Resend,
    StatusQuery,
    StopAt,
)
from tests.unit.gateway.backend import CELL, TERM, row
from tests.unit.gateway.conftest import Gateway


async def test_a_lost_frame_is_asked_for_again(gateway: Gateway) -> None:
    """A gap is repaired from the scheduler's log, and the text is whole."""
    call = gateway.complete(max_tokens=3)
    request = await gateway.taken()
    await gateway.backend.accept(request)
    gateway.backend.log[request.request_id] = (tuple(b"abc"), "length")
    await gateway.backend.tokens(request, 0, b"a")
    await gateway.backend.tokens(request, 2, b"c", "length")

    assert (await call.json())["choices"][0]["text"] == "abc"
    assert gateway.backend.control.get_nowait() == Resend(request.request_id, 0, 1, TERM, 1)
    assert gateway.metric("headrace:token_repairs_total") == 1


async def test_a_lost_last_frame_is_revealed_by_finished(gateway: Gateway) -> None:
    """The scheduler says how many there are; the rest is asked for."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    gateway.backend.log[request.request_id] = (tuple(b"ab"), "length")
    await gateway.backend.tokens(request, 0, b"a")

    assert await gateway.backend.finished(request, 2, "length")
    assert (await call.json())["choices"][0]["text"] == "ab"


async def test_a_frame_of_a_request_nobody_waits_for_is_answered_by_cancel(gateway: Gateway) -> None:
    """Once, though more of them come before the answer; its neighbours are served."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    for position in range(3):
        await gateway.backend.frame(row("stranger", position, b"x"), row(request.request_id, position, b"a"))
    cancel = await gateway.backend.told(Cancel)

    assert isinstance(cancel, Cancel) and cancel.request_id == "stranger"
    assert gateway.backend.control.empty()
    await gateway.backend.tokens(request, 3, b"b", "length")
    assert (await call.json())["choices"][0]["text"] == "aaab"


async def test_late_frames_of_a_finished_request_are_ignored(gateway: Gateway) -> None:
    """The worker may be a step ahead of the stop: no Cancel for that."""
    call = gateway.complete(stop=["b"])
    request = await gateway.taken()
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, b"ab")
    await call.whole()
    await gateway.backend.told(StopAt)
    await gateway.backend.told(Delivered)
    await asyncio.sleep(0)
    await gateway.backend.tokens(request, 2, b"c")
    await asyncio.sleep(0)

    assert gateway.backend.control.empty()


async def test_a_raised_epoch_fences_the_frames_before_it(gateway: Gateway) -> None:
    """The scheduler is told what is held; from then on the old attempt's tokens do not count."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, b"ab")

    logs = gateway.service.hub.on_reply(EpochRaised(request.request_id, TERM, CELL, (ChoiceEpoch(0, 2),)))
    assert logs == Logs((RequestLog(request.request_id, True, (ChoiceLog(0, tuple(b"ab"), "", 2),)),))
    await gateway.backend.tokens(request, 2, b"X", epoch=1)
    await gateway.backend.tokens(request, 2, b"c", "length", epoch=2)
    assert (await call.json())["choices"][0]["text"] == "abc"
    assert gateway.metric("headrace:stale_rows_total") == 1


async def test_what_is_said_of_a_request_names_its_attempt_and_its_trace(gateway: Gateway) -> None:
    """A question, a stop and the end alike, after the epoch was raised."""
    call = gateway.complete(stop=["c"])
    queued = await gateway.bus.queue.get()
    request = codec.decode(Request, queued.payload)
    await gateway.backend.accept(request)
    gateway.service.hub.on_reply(EpochRaised(request.request_id, TERM, CELL, (ChoiceEpoch(0, 3),)))
    gateway.backend.log[request.request_id] = (tuple(b"ab"), "")
    await gateway.backend.tokens(request, 1, b"b", epoch=3)
    resend = await asyncio.wait_for(gateway.backend.control.get(), 5)
    await gateway.backend.tokens(request, 2, b"c", epoch=3)
    await call.whole()

    said = [resend, await gateway.backend.told(StopAt), await gateway.backend.told(Delivered)]
    assert [message.epoch for message in said if not isinstance(message, StatusQuery | Exited)] == [3, 3, 3]
    assert gateway.backend.traces == {queued.traceparent} != {""}


async def test_stale_words_of_schedulers_are_counted(gateway: Gateway) -> None:
    """Those of a term that is over, and of an attempt that was taken back."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    gateway.service.hub.on_reply(EpochRaised(request.request_id, TERM, CELL, (ChoiceEpoch(0, 2),)))
    stale_term = gateway.service.hub.on_reply(Finished(request.request_id, 2, 0, 9, "stop", TERM - 1, CELL))
    stale_epoch = gateway.service.hub.on_reply(Finished(request.request_id, 1, 0, 9, "stop", TERM, CELL))

    assert (stale_term, stale_epoch) == (Known(False), Known(True))
    assert gateway.metric("headrace:stale_messages_total") == 2
    await gateway.backend.tokens(request, 0, b"a", "length", epoch=2)
    assert (await call.json())["choices"][0]["text"] == "a"


async def test_a_new_term_learns_what_is_held_and_what_is_gone(gateway: Gateway) -> None:
    """One answer for all that it asks about."""
    gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, b"a")

    logs = gateway.service.hub.on_reply(LogQuery((request.request_id, "gone"), TERM, CELL))

    assert logs == Logs(
        (
            RequestLog(request.request_id, True, (ChoiceLog(0, (97,), "", 1),)),
            RequestLog("gone", False, ()),
        )
    )


async def test_what_is_told_names_the_highest_term_that_is_known(gateway: Gateway) -> None:
    """So that a scheduler that was replaced, and does not know it yet, leaves the answer to its successor."""
    call = gateway.complete(max_tokens=3)
    request = await gateway.taken()
    await gateway.backend.accept(request)
    gateway.service.hub.on_reply(EpochRaised(request.request_id, TERM + 4, CELL, (ChoiceEpoch(0, 2),)))
    call.leave()
    cancel = await gateway.backend.told(Cancel)
    assert isinstance(cancel, Cancel) and cancel.term == TERM + 4


async def test_a_scheduler_whose_term_is_over_is_not_obeyed(gateway: Gateway) -> None:
    """It hears that the request is gone, and its word about an end does not count."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    hub = gateway.service.hub
    hub.on_reply(LogQuery((), TERM + 1, CELL))

    assert hub.on_reply(Finished(request.request_id, 1, 0, 0, "stop", TERM, CELL)) == Known(False)
    assert hub.on_reply(EpochRaised(request.request_id, TERM, CELL, (ChoiceEpoch(0, 9),))) == Logs(
        (RequestLog(request.request_id, False, ()),)
    )
    await gateway.backend.tokens(request, 0, b"a", "length")
    assert (await call.json())["choices"][0]["text"] == "a"


async def test_a_settled_request_is_gone(gateway: Gateway) -> None:
    """Once the scheduler has confirmed Delivered, nothing of the request is kept."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, b"a", "length")
    await call.whole()
    await gateway.backend.told(Delivered)
    await asyncio.sleep(0.01)

    assert not await gateway.backend.finished(request, 1, "length")


@pytest.mark.parametrize("choice", [1, 4_000_000_000])
async def test_a_token_of_a_choice_nobody_asked_for_ends_the_request(gateway: Gateway, choice: int) -> None:
    """A worker of another version must not crash the gateway."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, b"a", choice=choice)

    await call.whole()
    assert call.status == 500


async def test_the_gateway_says_that_it_lives_while_it_holds_a_request(gateway: Gateway) -> None:
    """Alive on its own subject, from the moment a request goes out; an idle gateway wakes nobody."""
    await asyncio.sleep(0)
    assert gateway.bus.published == []

    gateway.complete()
    await gateway.taken()

    subject, payload = gateway.bus.published[0]
    assert subject == "alive.gateway-1" and payload


@pytest.mark.parametrize("seed", range(8))
async def test_frames_in_any_order_and_more_than_once_make_the_same_text(gateway: Gateway, seed: int) -> None:
    """Nothing wrong is ever sent, and what comes late or twice changes nothing."""
    draw, text = Random(seed), b"exactly this"
    call = gateway.complete(max_tokens=len(text))
    request = await gateway.taken()
    await gateway.backend.accept(request)
    gateway.backend.log[request.request_id] = (tuple(text), "length")
    positions = [*range(len(text)), *draw.choices(range(len(text)), k=6)]
    draw.shuffle(positions)
    for position in positions:
        end = "length" if position == len(text) - 1 else ""
        await gateway.backend.tokens(request, position, [text[position]], end)

    assert (await call.json())["choices"][0]["text"] == text.decode()
    assert gateway.metric("headrace:exactness_violation_total") == 0
