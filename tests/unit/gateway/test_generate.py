"""One request from body to response over a fake bus: streamed and whole, failing, left alone."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from libs.contracts.errors import ContextTooLong, HeadraceError, Overloaded, Unavailable, WireError, WorkerLost
from libs.contracts.messages import Cancel, Delivered, Request, StopAt
from services.gateway import outbox
from tests.unit.gateway.asgi import Call, events, text_of
from tests.unit.gateway.backend import CELL, EOS, PROMPT_IDS, TERM
from tests.unit.gateway.conftest import Gateway, running_gateway

CONTROL = f"control.{CELL}"


async def play(gateway: Gateway, call: Call, ids: Sequence[int], end: str, **fields: Any) -> Request:
    """Accept the next request and send one frame a token, the response reading along."""
    request = await gateway.taken()
    await gateway.backend.accept(request)
    for position, token_id in enumerate(ids):
        last = end if position == len(ids) - 1 else ""
        await gateway.backend.tokens(request, position, [token_id], last, **fields)
        for _ in range(3):
            await asyncio.sleep(0)
    return request


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("stop", [None, "wor"])
async def test_streamed_and_whole_say_the_same(gateway: Gateway, chat: bool, stop: str | None) -> None:
    """Text, reason, usage and ids do not depend on `stream`."""
    send = gateway.chat if chat else gateway.complete
    ids = [*"héllo wörld, world".encode(), EOS]

    call = send(stop=stop, max_tokens=40, return_token_ids=True)
    await play(gateway, call, ids, "stop", cached_tokens=2)
    whole = await call.json()
    call = send(stop=stop, max_tokens=40, return_token_ids=True, stream=True, stream_options={"include_usage": True})
    await play(gateway, call, ids, "stop", cached_tokens=2)
    chunks = events(await call.whole())

    choice = whole["choices"][0]
    assert text_of(chunks) == (choice["message"]["content"] if chat else choice["text"])
    assert choice["finish_reason"] == [c["choices"][0]["finish_reason"] for c in chunks[:-2]][-1] == "stop"
    assert chunks[-2]["usage"] == whole["usage"] and chunks[-1] == "[DONE]"
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    streamed_ids = [i for c in chunks[:-2] for i in c["choices"][0].get("token_ids", ())]
    assert streamed_ids == choice["token_ids"] == ids[: whole["usage"]["completion_tokens"]]
    assert (whole if chat else choice)["prompt_token_ids"] == list(PROMPT_IDS)


async def test_each_token_is_a_chunk_as_soon_as_it_is_here(gateway: Gateway) -> None:
    """The role with the first text, no empty text after it, one reason."""
    call = gateway.chat(stream=True)
    request = await gateway.taken()
    await gateway.backend.accept(request)
    parts = []
    for position, token_id in enumerate(b"abc"):
        await gateway.backend.tokens(request, position, [token_id], "length" if position == 2 else "")
        parts.append(await call.part())

    assert (call.status, call.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert [text_of(events(part)) for part in parts] == ["a", "b", "c"]
    assert events(parts[0])[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert await call.whole() == b"data: [DONE]\n\n"


async def test_the_request_carries_what_was_asked(gateway: Gateway) -> None:
    """Queue, message id and trace context as the protocol has them."""
    gateway.complete(seed=7, min_tokens=2, max_tokens=5, stop_token_ids=[9], return_token_ids=True)

    queued = await gateway.bus.queue.get()

    assert queued.subject == "requests.bytes"
    gateway.bus.queue.put_nowait(queued)
    request = await gateway.taken()
    assert queued.message_id == f"{request.request_id}:1:request"
    assert request.request_id.startswith("cmpl-") and len(request.request_id) == len("cmpl-") + 32
    assert (request.params.seed, request.params.max_tokens, request.params.stop_token_ids) == (7, 5, (9,))
    assert (request.epoch, request.choices, request.echo_ids, request.gateway) == (1, 1, True, "gateway-1")


async def test_a_complete_answer_is_acknowledged(gateway: Gateway) -> None:
    """Delivered tells the scheduler how many tokens there were, whatever the client has read."""
    call = gateway.chat(stream=True)
    request = await play(gateway, call, [97, 98], "length")

    assert await gateway.backend.told(Delivered) == Delivered(request.request_id, (2,), TERM, 1)
    assert call.headers == {}


async def test_a_stop_string_is_reported_by_its_position(gateway: Gateway) -> None:
    """StopAt first, then Delivered with the tokens up to it; later tokens change nothing."""
    call = gateway.complete(stop=["c"])
    request = await play(gateway, call, b"abcde", "")

    assert await gateway.backend.told(StopAt) == StopAt(request.request_id, 0, 2, TERM, 1)
    assert await gateway.backend.told(Delivered) == Delivered(request.request_id, (3,), TERM, 1)
    body = await call.json()
    assert (body["choices"][0]["text"], body["usage"]["completion_tokens"]) == ("ab", 3)


async def test_frames_that_overtake_accepted_wait_for_it(gateway: Gateway) -> None:
    """Usage and prompt ids come from Accepted, so nothing goes out before."""
    call = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.tokens(request, 0, b"ab", "length")
    await gateway.backend.told(Delivered)

    assert not call.task.done()
    assert await gateway.backend.accept(request)
    assert (await call.json())["usage"]["prompt_tokens"] == len(PROMPT_IDS)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_rejected_request_is_answered_by_its_error(gateway: Gateway, stream: bool) -> None:
    """With a status of its own also when a stream was asked for."""
    call = gateway.chat(stream=stream)
    request = await gateway.taken()
    await gateway.backend.reject(request, WireError.of(ContextTooLong("70 tokens, 64 fit", param="messages")))

    body = await call.json()
    assert (call.status, body["error"]["param"], body["error"]["code"]) == (400, "messages", "context_length_exceeded")
    assert call.headers["x-request-id"] == request.request_id


async def test_a_failure_in_mid_stream_is_the_last_event(gateway: Gateway) -> None:
    """An error object, no reason, no [DONE]: a client cannot take a part for the whole."""
    call = gateway.chat(stream=True)
    request = await play(gateway, call, [97], "")
    await gateway.backend.fail(request, WireError.of(WorkerLost("the worker died")))

    chunks = events(await call.whole())
    assert chunks[-1]["error"]["code"] == "worker_lost"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])


async def test_output_that_is_not_finite_is_an_error(gateway: Gateway) -> None:
    """And acknowledged, since the scheduler can do nothing more."""
    call = gateway.complete()
    request = await play(gateway, call, [97], "")
    await gateway.backend.tokens(request, 1, [], "error")

    assert (await call.json())["error"]["code"] == "numerical_error"
    assert (call.status, call.headers["x-should-retry"]) == (500, "false")
    assert await gateway.backend.told(Delivered) == Delivered(request.request_id, (1,), TERM, 1)


async def test_two_reports_that_differ_end_the_request(gateway: Gateway) -> None:
    """Never a splice: a typed error, a counter, and the scheduler drops it."""
    call = gateway.complete()
    request = await play(gateway, call, b"ab", "")
    await gateway.backend.tokens(request, 1, b"x")

    assert (await call.json())["error"]["code"] == "exactness_violation"
    assert await gateway.backend.told(Cancel) == Cancel(request.request_id, request.deadline_unix_ms, TERM, 1)
    assert gateway.metric("headrace:exactness_violation_total") == 1


@pytest.mark.parametrize("error, status", [(Overloaded("the queue is full"), 429), (Unavailable("x"), 503)])
async def test_a_queue_that_refuses_is_told(
    gateway: Gateway, error: HeadraceError, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a time to come again, and nothing held; a broker that is away is waited for first."""
    monkeypatch.setattr(outbox, "QUEUE_PATIENCE_S", 0.0)
    gateway.bus.enqueue_error = error
    call = gateway.chat(stream=True)

    await call.whole()
    assert call.status == status and int(call.headers["retry-after"]) in (1, 2)
    assert gateway.metric("vllm:num_requests_waiting") == 0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tokens", [0, 2])
async def test_a_client_that_leaves_is_cancelled(gateway: Gateway, stream: bool, tokens: int) -> None:
    """Before the first token and after it, streamed or not: the scheduler hears of it at once."""
    call = gateway.complete(stream=stream)
    request = await play(gateway, call, b"ab"[:tokens], "")
    call.leave()

    assert await gateway.backend.told(Cancel) == Cancel(request.request_id, request.deadline_unix_ms, TERM, 1)
    await asyncio.wait_for(call.task, 5)
    assert gateway.metric("vllm:num_requests_running") == gateway.metric("vllm:num_requests_waiting") == 0
    assert gateway.metric("vllm:request_success_total", finished_reason="abort") == 1


async def test_a_client_that_leaves_before_acceptance_makes_the_request_gone(gateway: Gateway) -> None:
    """Nobody can be told yet; the tokenizer hears it in answer to Accepted, and cancels."""
    call = gateway.complete()
    request = await gateway.taken()
    call.leave()
    await asyncio.wait_for(call.task, 5)

    assert not await gateway.backend.accept(request)
    assert gateway.backend.control.empty()


async def test_a_request_that_takes_too_long_times_out() -> None:
    """504 and a Cancel; the client is told not to try again blindly."""
    async with running_gateway(request_timeout_s=0.1) as gateway:
        call = gateway.complete()
        request = await play(gateway, call, b"a", "")

        assert (await call.json())["error"]["code"] == "deadline_exceeded"
        assert call.status == 504
        assert await gateway.backend.told(Cancel) == Cancel(request.request_id, request.deadline_unix_ms, TERM, 1)


async def test_control_messages_are_repeated_until_answered(gateway: Gateway) -> None:
    """A scheduler that restarts meanwhile still hears of the Cancel."""
    call = gateway.complete()
    await play(gateway, call, b"a", "")
    gateway.bus.deaf.add(CONTROL)
    call.leave()
    await asyncio.wait_for(call.task, 5)
    gateway.bus.deaf.clear()

    await gateway.backend.told(Cancel)


async def test_every_request_is_counted_once(gateway: Gateway) -> None:
    """By outcome, with its tokens, and the gauges return to zero."""
    call = gateway.complete(stream=True)
    await play(gateway, call, b"abc", "length")
    await call.whole()
    await gateway.backend.told(Delivered)

    assert gateway.metric("vllm:request_success_total", finished_reason="length") == 1
    assert (gateway.metric("vllm:prompt_tokens_total"), gateway.metric("vllm:generation_tokens_total")) == (3, 3)
    assert gateway.metric("vllm:time_to_first_token_seconds_count") == 1
    assert gateway.metric("vllm:inter_token_latency_seconds_count") == 2
    assert gateway.metric("vllm:e2e_request_latency_seconds_count") == 1
    assert gateway.metric("vllm:num_requests_running") == gateway.metric("vllm:num_requests_waiting") == 0


async def test_a_drain_that_takes_too_long_ends_what_is_left(gateway: Gateway) -> None:
    """The client gets an error event instead of a cut, and the scheduler a Cancel."""
    call = gateway.complete(stream=True)
    request = await play(gateway, call, b"a", "")

    await gateway.service.hub.drain(0)

    assert events(await call.whole())[-1]["error"]["code"] == "unavailable"
    assert await gateway.backend.told(Cancel) == Cancel(request.request_id, request.deadline_unix_ms, TERM, 1)


async def test_a_crash_in_mid_stream_is_no_normal_end(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response is cut where it stands, counted as an error, and the scheduler drops the request."""
    call = gateway.complete(stream=True)
    request = await play(gateway, call, b"a", "")

    def crash(*_: object) -> bytes:
        raise RuntimeError("bug")

    monkeypatch.setattr("services.gateway.shapes.ChunkWriter.delta", crash)
    await gateway.backend.tokens(request, 1, b"b")
    with pytest.raises(RuntimeError, match="bug"):
        await asyncio.wait_for(call.task, 5)

    assert await gateway.backend.told(Cancel) == Cancel(request.request_id, request.deadline_unix_ms, TERM, 1)
    assert gateway.metric("vllm:request_success_total", finished_reason="error") == 1
