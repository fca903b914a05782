"""Several choices of one request: each with its own text and end, in one response with one usage."""

import asyncio
from collections.abc import Sequence

import pytest

from libs.contracts.messages import ChoiceEpoch, ChoiceLog, Delivered, EpochRaised, Logs, Request, RequestLog, StopAt
from tests.unit.gateway.asgi import events, text_of
from tests.unit.gateway.backend import CELL, TERM
from tests.unit.gateway.conftest import Gateway


async def accepted(gateway: Gateway) -> Request:
    request = await gateway.taken()
    await gateway.backend.accept(request)
    return request


async def tokens(
    gateway: Gateway, request: Request, choice: int, ids: Sequence[int], position: int, end: str = ""
) -> None:
    await gateway.backend.tokens(request, position, ids, end, choice=choice)
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("chat", [True, False])
async def test_whole_and_streamed_tell_each_choice_by_its_index(gateway: Gateway, chat: bool) -> None:
    """Text and reason of each; the prompt counts once, and every choice's tokens."""
    send = gateway.chat if chat else gateway.complete
    for stream in (False, True):
        call = send(n=3, max_tokens=4, stream=stream, stream_options={"include_usage": True} if stream else None)
        request = await accepted(gateway)
        assert request.choices == 3
        for choice, text in ((2, b"xy"), (0, b"abcd"), (1, b"m")):
            await tokens(gateway, request, choice, text[:1], 0, "" if text[1:] else "stop")
        await tokens(gateway, request, 0, b"bcd", 1, "length")
        await tokens(gateway, request, 2, b"y\0", 1, "stop")
        assert await gateway.backend.told(Delivered) == Delivered(request.request_id, (4, 1, 3), TERM, 1)
        if stream:
            chunks = events(await call.whole())
            usage, told = chunks[-2]["usage"], [c["choices"][0] for c in chunks[:-2]]
            texts = [text_of([{"choices": [one]} for one in told if one["index"] == index]) for index in range(3)]
            reasons = {one["index"]: one["finish_reason"] for one in told if one["finish_reason"]}
            assert sum(one.get("delta", {}).get("role") == "assistant" for one in told) == (3 if chat else 0)
        else:
            body = await call.json()
            usage, choices = body["usage"], body["choices"]
            assert [choice["index"] for choice in choices] == [0, 1, 2]
            texts = [choice["message"]["content"] if chat else choice["text"] for choice in choices]
            reasons = {choice["index"]: choice["finish_reason"] for choice in choices}
        assert texts == ["abcd", "", "xy"] and reasons == {0: "length", 1: "stop", 2: "stop"}
        assert usage["completion_tokens"] == 8 and usage["total_tokens"] == usage["prompt_tokens"] + 8


async def test_a_stop_string_ends_its_choice_alone(gateway: Gateway) -> None:
    """StopAt names the choice; the others go on."""
    call = gateway.complete(n=2, stop=["c"], max_tokens=5)
    request = await accepted(gateway)
    await tokens(gateway, request, 1, b"abc", 0)
    assert await gateway.backend.told(StopAt) == StopAt(request.request_id, 1, 2, TERM, 1)
    await tokens(gateway, request, 0, b"xyzxy", 0, "length")
    assert await gateway.backend.told(Delivered) == Delivered(request.request_id, (5, 3), TERM, 1)
    assert [choice["text"] for choice in (await call.json())["choices"]] == ["xyzxy", "ab"]


async def test_an_epoch_is_a_choice_s_own(gateway: Gateway) -> None:
    """One that was raised fences its own frames and nobody else's, and the log tells each choice's."""
    call = gateway.complete(n=2, max_tokens=2)
    request = await accepted(gateway)
    await tokens(gateway, request, 0, b"a", 0)
    raised = EpochRaised(request.request_id, TERM, CELL, (ChoiceEpoch(1, 3, deaths=2, died_at=9),))
    logs = gateway.service.hub.on_reply(raised)
    assert logs == Logs(
        (RequestLog(request.request_id, True, (ChoiceLog(0, (97,), "", 1), ChoiceLog(1, (), "", 3, 2, 9))),)
    )
    await gateway.backend.tokens(request, 0, b"X", "", choice=1, epoch=2)
    await gateway.backend.tokens(request, 0, b"yz", "length", choice=1, epoch=3)
    await gateway.backend.tokens(request, 1, b"b", "length", choice=0, epoch=1)
    assert [choice["text"] for choice in (await call.json())["choices"]] == ["ab", "yz"]
    assert gateway.metric("headrace:stale_rows_total") == 1


async def test_a_frame_of_a_choice_that_nobody_asked_for_breaks_the_request(gateway: Gateway) -> None:
    """It is not ours to guess what it means."""
    call = gateway.complete(n=2)
    request = await accepted(gateway)
    await tokens(gateway, request, 2, b"a", 0)
    await call.whole()
    assert call.status == 500
