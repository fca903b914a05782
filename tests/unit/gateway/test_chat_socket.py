"""Chat over a WebSocket: the same chunks as a streamed POST, cancel, and what a client can get wrong."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from libs.contracts.messages import Cancel, Delivered, Request
from tests.unit.gateway.asgi import App, text_of
from tests.unit.gateway.backend import MODEL
from tests.unit.gateway.conftest import MAX_BODY_BYTES, Gateway, running_gateway
from tests.unit.gateway.sockets import Socket

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.fixture
async def socket(gateway: Gateway) -> AsyncIterator[Socket]:
    opened = Socket(cast(App, gateway.app))
    yield opened
    opened.task.cancel()


async def begun(gateway: Gateway, socket: Socket, **fields: Any) -> Request:
    """A request that a worker has given its first token."""
    socket.say(BODY | fields)
    request = await gateway.taken()
    assert await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, [ord("a")])
    return request


async def test_an_answer_comes_in_the_chunks_of_a_stream(gateway: Gateway, socket: Socket) -> None:
    """Role, text, reason, usage, [DONE]; and another request may follow."""
    for _ in range(2):
        request = await begun(gateway, socket, stream_options={"include_usage": True})
        await gateway.backend.tokens(request, 1, [ord("b")], "length")
        heard = await socket.hear_answer()

        assert text_of(heard) == "ab" and heard[-1] == "[DONE]"
        assert heard[0]["choices"][0]["delta"]["role"] == "assistant"
        assert heard[-2]["usage"]["completion_tokens"] == 2
        assert {chunk["id"] for chunk in heard[:-1]} == {request.request_id}
        assert (await gateway.backend.told(Delivered)).request_id == request.request_id


async def test_cancel_ends_the_answer_and_not_the_socket(gateway: Gateway, socket: Socket) -> None:
    """The scheduler is told at once; the next request is served."""
    request = await begun(gateway, socket)
    await socket.hear()
    socket.say({"type": "cancel"})

    assert (await gateway.backend.told(Cancel)).request_id == request.request_id
    heard = await socket.hear_answer()
    assert heard[-1] == {"type": "cancelled", "id": request.request_id}
    again = await begun(gateway, socket)
    await gateway.backend.tokens(again, 1, [ord("b")], "length")
    assert text_of(await socket.hear_answer()) == "ab"
    assert gateway.metric("vllm:request_success_total", finished_reason="abort") == 1


async def test_a_client_that_leaves_is_cancelled(gateway: Gateway, socket: Socket) -> None:
    """Closing the socket is as good as saying so."""
    request = await begun(gateway, socket)
    socket.leave()

    assert (await gateway.backend.told(Cancel)).request_id == request.request_id
    await socket.task


@pytest.mark.parametrize(
    ("said", "code", "param"),
    [
        ("no json", "invalid_request", None),
        (BODY | {"temperature": 9}, "invalid_request", "temperature"),
        (BODY | {"model": "other"}, "model_not_found", "model"),
        ({**BODY, "stream": False}, "invalid_request", "stream"),
    ],
)
async def test_a_bad_body_is_answered_as_over_http(
    gateway: Gateway, socket: Socket, said: object, code: str, param: str | None
) -> None:
    """The same error object, and the socket stays open."""
    socket.say(said)

    error = (await socket.hear())["error"]
    assert (error["code"], error["param"]) == (code, param)
    request = await begun(gateway, socket)
    await gateway.backend.tokens(request, 1, [], "length")


async def test_a_second_body_waits_its_turn_and_a_third_is_refused(gateway: Gateway, socket: Socket) -> None:
    """A client that has read [DONE] may be faster than the end of its request here."""
    request = await begun(gateway, socket)
    await socket.hear()
    await socket.hear()
    socket.say(BODY)
    socket.say(BODY)

    assert "waits already" in (await socket.hear())["error"]["message"]
    await gateway.backend.tokens(request, 1, [ord("b")], "length")
    assert text_of(await socket.hear_answer()) == "b"
    waited = await gateway.taken()
    assert await gateway.backend.accept(waited)
    await gateway.backend.tokens(waited, 0, [ord("c")], "length")
    assert text_of(await socket.hear_answer()) == "c"


async def test_what_is_no_text_or_too_much_closes_the_socket(gateway: Gateway) -> None:
    """With the codes of RFC 6455."""
    binary, large = Socket(cast(App, gateway.app)), Socket(cast(App, gateway.app))
    binary.say_bytes(b"\x00")
    large.say("x" * (MAX_BODY_BYTES + 1))

    for opened, code in ((binary, 1003), (large, 1009)):
        assert await opened.hear() is None
        assert opened.closed == code
        await opened.task


async def test_a_socket_needs_the_key_and_no_other_sites_page() -> None:
    """Refused before it is accepted."""
    async with running_gateway(api_key="sk-test") as gateway:
        bearer = {"authorization": "Bearer sk-test"}
        for headers in ({}, {"authorization": "Bearer wrong"}, bearer | {"origin": "http://evil.example"}):
            refused = Socket(cast(App, gateway.app), **headers)
            assert await refused.hear() is None
            assert refused.closed == 1008
        own = Socket(cast(App, gateway.app), **bearer, origin="http://localhost:8000")
        request = await begun(gateway, own)
        await gateway.backend.tokens(request, 1, [ord("b")], "length")
        assert text_of(await own.hear_answer()) == "ab"
        own.task.cancel()


async def test_without_a_key_only_names_of_this_machine_are_answered(gateway: Gateway) -> None:
    """A name that resolves to loopback must not lead a page here."""
    refused = Socket(cast(App, gateway.app), host="evil.example")

    assert await refused.hear() is None
    assert refused.closed == 1008


async def test_a_draining_gateway_sends_sockets_elsewhere(gateway: Gateway, socket: Socket) -> None:
    """The error of the POST, then the close code for a restart."""
    gateway.service.door.close()
    socket.say(BODY)

    assert (await socket.hear())["error"]["code"] == "unavailable"
    assert await socket.hear() is None
    assert socket.closed == 1012
