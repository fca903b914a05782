"""Routes, the key, and everything that a client can get wrong before its request is one."""

import asyncio
import json
from typing import Any

import pytest

from libs.contracts.errors import Unavailable
from libs.contracts.messages import Delivered
from tests.unit.gateway.asgi import Call
from tests.unit.gateway.backend import MODEL, cell_record
from tests.unit.gateway.conftest import MAX_BODY_BYTES, MAX_MODEL_LEN, Gateway, running_gateway

KEY = "sk-test-abc"
PROTECTED = [
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/tokenizer_info"),
    ("GET", "/version"),
    ("GET", "/docs"),
    ("GET", "/nowhere"),
    ("POST", "//v1/completions"),
    ("POST", "/v1/completions/"),
    ("POST", "/health/../v1/completions"),
    ("GET", "/health/"),
    ("GET", "/HEALTH"),
    ("DELETE", "/v1/models"),
    ("OPTIONS", "/v1/chat/completions"),
]


async def error_of(call: Call) -> tuple[int, dict[str, Any]]:
    error = (await call.json())["error"]
    assert set(error) == {"message", "type", "param", "code"} and call.headers["content-type"] == "application/json"
    return call.status, error


@pytest.mark.parametrize("method, path", PROTECTED)
async def test_without_the_key_every_route_is_closed(method: str, path: str) -> None:
    """Also routes that do not exist, and other spellings of those that do."""
    async with running_gateway(api_key=KEY) as gateway:
        status, error = await error_of(gateway.call(path, method=method))

    assert (status, error["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/health", "/live", "/ready"])
async def test_health_is_public(path: str) -> None:
    """Probes carry no key."""
    async with running_gateway(api_key=KEY) as gateway:
        call = gateway.call(path, method="GET")
        await call.whole()

    assert call.status == 200


@pytest.mark.parametrize(
    "header, status",
    [
        (f"Bearer {KEY}", 200),
        (f"bearer {KEY}", 200),
        ("Bearer wrong", 401),
        (f"Bearer {KEY}x", 401),
        (f"Basic {KEY}", 401),
        (f"Bearer  {KEY}", 401),
        (KEY, 401),
        ("Bearer ", 401),
        ("Bearer é", 401),
    ],
)
async def test_only_the_key_as_bearer_token_opens(header: str, status: int) -> None:
    """The scheme in any case, the key to the letter."""
    async with running_gateway(api_key=KEY) as gateway:
        call = gateway.call("/v1/models", method="GET", headers={"authorization": header})
        await call.whole()

    assert call.status == status


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "10.0.0.1", "", "localhost.evil.example"])
async def test_without_a_key_only_this_machines_names_are_answered(gateway: Gateway, host: str) -> None:
    """A page in a browser cannot reach the server through a name of its own."""
    status, error = await error_of(gateway.call("/v1/models", method="GET", headers={"host": host}))

    assert (status, error["code"]) == (403, "forbidden")


async def test_two_host_headers_are_none(gateway: Gateway) -> None:
    """Which of them counts is anybody's guess."""
    call = gateway.call("/v1/models", method="GET", again=(("host", "localhost"),))

    assert (await error_of(call))[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "localhost:1"])
async def test_this_machines_names_need_no_key(gateway: Gateway, host: str) -> None:
    """With and without a port, also IPv6."""
    call = gateway.call("/v1/models", method="GET", headers={"host": host})
    await call.whole()

    assert call.status == 200


async def test_models_lists_the_served_one(gateway: Gateway) -> None:
    """With the fields that clients of vLLM look for."""
    (model,) = (await gateway.call("/v1/models", method="GET").json())["data"]

    assert (model["id"], model["max_model_len"], model["root"], model["parent"]) == (MODEL, MAX_MODEL_LEN, MODEL, None)
    assert (model["object"], model["owned_by"]) == ("model", "headrace") and model["created"] > 0


async def test_a_model_is_described_by_its_id(gateway: Gateway) -> None:
    """As `models.retrieve` of the official client asks; another one does not exist."""
    model = await gateway.call(f"/v1/models/{MODEL}", method="GET").json()
    assert (model["id"], model["object"], model["max_model_len"]) == (MODEL, "model", MAX_MODEL_LEN)

    status, error = await error_of(gateway.call("/v1/models/org/other", method="GET"))
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")


async def test_metrics_have_the_known_names(gateway: Gateway) -> None:
    """As a Prometheus text."""
    text = (await gateway.call("/metrics", method="GET").whole()).decode()

    for name in ("num_requests_running", "num_requests_waiting", "time_to_first_token_seconds_bucket"):
        assert f"vllm:{name}{{" in text
    assert 'vllm:request_success_total{finished_reason="stop",model_name="bytes"} 0.0' in text


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/v1/nope", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
        ("POST", "/v1/completions/", 404),
    ],
)
async def test_wrong_routes_and_methods_are_openai_errors(
    gateway: Gateway, method: str, path: str, status: int
) -> None:
    """An object with the four fields, never plain text or a redirect."""
    assert (await error_of(gateway.call(path, method=method)))[0] == status


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({"content-length": str(MAX_BODY_BYTES + 1)}, 413),
        ({"content-length": "9" * 5000}, 413),
    ],
)
async def test_what_cannot_be_a_body_is_refused_by_its_head(
    gateway: Gateway, headers: dict[str, str], status: int
) -> None:
    """Media type, encoding and declared size are judged before a byte is read."""
    call = gateway.call("/v1/completions", {"prompt": "hi"}, headers=headers)

    assert (await error_of(call))[0] == status


async def test_a_charset_in_the_media_type_is_fine(gateway: Gateway) -> None:
    """application/json; charset=utf-8 is JSON; the body is looked at."""
    call = gateway.call("/v1/completions", b"{", headers={"content-type": "application/json; charset=utf-8"})

    assert (await error_of(call))[0] == 400


async def test_a_body_that_grows_too_large_is_refused(gateway: Gateway) -> None:
    """Whatever its head declared."""
    status, error = await error_of(gateway.call("/v1/completions", b" " * (MAX_BODY_BYTES + 1)))

    assert (status, error["code"]) == (413, "body_too_large")


async def test_an_invalid_request_names_its_field(gateway: Gateway) -> None:
    """Also when a stream was asked for: a plain 400, with the request's id."""
    call = gateway.chat(stream=True, temperature=3)
    status, error = await error_of(call)

    assert (status, error["param"], error["type"]) == (400, "temperature", "invalid_request_error")
    assert call.headers["x-request-id"].startswith("chatcmpl-")


async def test_an_unknown_model_is_not_found(gateway: Gateway) -> None:
    """404 with the code that clients know."""
    status, error = await error_of(gateway.chat(model="nope"))

    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")


async def test_a_crash_tells_the_client_nothing(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 as an OpenAI error, without a word of the exception."""

    def crash() -> str:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(gateway.service.door, "ready", crash)
    status, error = await error_of(gateway.call("/ready", method="GET"))

    assert (status, error["code"]) == (500, "internal") and "secret" not in json.dumps(error)


async def test_a_request_that_nobody_can_serve_fails_at_once(gateway: Gateway) -> None:
    """No cell, or a cell without a worker: 503 with a time to come again."""
    gateway.bus.directory.records[:] = [cell_record(max_prompt_tokens=0)]
    assert (await error_of(gateway.chat()))[0] == 503
    gateway.bus.directory.records.clear()
    call = gateway.chat()
    assert (await error_of(call))[0] == 503 and call.headers["retry-after"] in ("1", "2")


async def test_a_request_waits_for_a_broker_that_restarts(gateway: Gateway) -> None:
    """It goes out when the broker is back, under the same message id; the client sees a longer first token."""
    gateway.bus.enqueue_error = Unavailable("the broker is away")
    call = gateway.complete(max_tokens=1)
    await asyncio.sleep(0.02)
    gateway.bus.enqueue_error = None

    request = await gateway.taken()
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, b"a", "length")
    assert (await call.json())["choices"][0]["text"] == "a"


async def test_ready_needs_a_scheduler_with_a_worker(gateway: Gateway) -> None:
    """A record of a cell is not enough: its scheduler must answer, and name a worker."""
    gateway.backend.workers = ()
    call = gateway.call("/ready", method="GET")

    assert (await call.json())["status"] == "no scheduler with a worker answers" and call.status == 503


async def test_ready_asks_at_most_twice_a_second(gateway: Gateway) -> None:
    """It is public, so asking often must cost nothing."""
    for workers, status in (("decode-1",), 200), ((), 200):
        gateway.backend.workers = workers
        call = gateway.call("/ready", method="GET")
        await call.whole()
        assert call.status == status


async def test_a_closed_door_lets_streams_finish_and_nothing_in(gateway: Gateway) -> None:
    """Draining: not ready, alive, new requests 503 and the connection closed, running ones complete."""
    running = gateway.complete()
    request = await gateway.taken()
    await gateway.backend.accept(request)
    gateway.service.door.close()

    late, ready, live = gateway.complete(), gateway.call("/ready", method="GET"), gateway.call("/live", method="GET")
    assert (await error_of(late))[0] == 503 and late.headers["connection"] == "close"
    await asyncio.gather(ready.whole(), live.whole())
    assert (ready.status, live.status) == (503, 200)
    await gateway.backend.tokens(request, 0, b"a", "length")
    assert (await running.json())["choices"][0]["text"] == "a"
    await gateway.backend.told(Delivered)


async def test_a_door_that_has_given_notice_takes_what_still_comes(gateway: Gateway) -> None:
    """Whoever chooses among gateways looks once a second, say: until it has, nothing is refused."""
    gateway.service.door.give_notice()

    ready, late = gateway.call("/ready", method="GET"), gateway.complete()
    assert (await ready.json())["status"] == "the server is shutting down" and ready.status == 503
    request = await gateway.taken()
    await gateway.backend.accept(request)
    await gateway.backend.tokens(request, 0, b"a", "length")
    assert (await late.json())["choices"][0]["text"] == "a"
    await gateway.backend.told(Delivered)
