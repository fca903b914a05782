"""Deny by default: whatever the route, the method, the spelling of the path or the Host, no key is no answer."""

import itertools
import json
import re
from collections.abc import Iterator

import pytest

from services.gateway.auth import PUBLIC
from services.gateway.openapi import openapi
from tests.unit.gateway.conftest import LIMITS, Gateway, running_gateway

KEY = "sk-test-abc"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PROPFIND", "get", "")
SPELLINGS = (
    "{}",
    "/{}",
    "{}/",
    "{};x",
    "{}/..",
    "/health/..{}",
    "/health;{}",
    "/%2e{}",
    "{}%00",
    "{}#",
    "{}\\",
    "/.{}",
)
HOSTS = (
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
    "evil.example#localhost",
    "/",
    "?",
    "#",
    "@",
    "\\",
    "",
    " localhost",
    "localhost/../x",
    "[::1",
    "x" * 8000,
    "0.0.0.0",
    "10.0.0.1",
    "localhost\x00",
)
TELLING = re.compile(r"0x[0-9a-f]{6,}|/home|/usr|Traceback|\.py\b|/dev/shm|memfd|nats://|sk-test", re.IGNORECASE)


def _paths() -> list[str]:
    known = json.loads(openapi([LIMITS], [LIMITS.model], "0"))["paths"]
    return [path.replace("{model}", LIMITS.model) for path in known if path not in PUBLIC]


def _spelled() -> Iterator[str]:
    for path in (*_paths(), "/docs", "/invocations", "/generate", "/v1/load_lora_adapter", "/admin", "/internal"):
        yield from (spelling.format(path) for spelling in SPELLINGS)
        yield from (path.upper(), path.replace("/", "%2f"), path.replace("/", "//"))


async def test_no_route_answers_any_method_without_a_key() -> None:
    """However the path is spelled: 401, and nothing of what is behind it."""
    async with running_gateway(api_key=KEY) as gateway:
        for path, method in itertools.product(_paths(), METHODS):
            call = gateway.call(path, method=method)
            await call.whole()
            assert call.status == 401, (method, path)
        for path in _spelled():
            call = gateway.call(path, method="GET")
            await call.whole()
            assert call.status == 401, path


@pytest.mark.parametrize("path", sorted(PUBLIC))
async def test_what_is_public_says_no_more_than_its_state(path: str) -> None:
    """One word, to GET alone."""
    async with running_gateway(api_key=KEY) as gateway:
        for method in METHODS:
            call = gateway.call(path, method=method)
            body = await call.whole()
            assert call.status in (200, 405), method
            assert call.status == 405 or method == "HEAD" or set(json.loads(body)) == {"status"}


@pytest.mark.parametrize("host", HOSTS)
async def test_no_host_opens_a_server_without_a_key(gateway: Gateway, host: str) -> None:
    """Unless it is this machine's own; with a key no host replaces it."""
    for path in _paths():
        call = gateway.call(path, method="GET", headers={"host": host})
        await call.whole()
        assert call.status == 403, path
    async with running_gateway(api_key=KEY) as locked:
        call = locked.call("/v1/models", method="GET", headers={"host": host})
        await call.whole()
        assert call.status == 401


async def test_no_error_tells_what_is_inside(gateway: Gateway) -> None:
    """No address, path, peer, trace or key in any of them."""
    bodies: list[object] = [
        1,
        None,
        [],
        "x",
        {},
        {"n": 0},
        {"n": 1 << 70},
        {"stop": [""]},
        {"stop": {}},
        {"prompt": [[]]},
    ]
    bodies += [
        {"temperature": "hot"},
        {"top_p": -1},
        {"logit_bias": {"x": 1}},
        {"tools": [{}]},
        {"model": "/etc/passwd"},
    ]
    bodies += [
        {"prompt": {"a": 1}},
        {"stream_options": 5},
        {"seed": 1.5},
        {"lora": "../../x"},
        {"prompt_embeds": "gASV"},
    ]
    for path, body in itertools.product(
        ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"), bodies
    ):
        fields = {"model": LIMITS.model, **body} if isinstance(body, dict) else body
        call = gateway.call(path, json.dumps(fields).encode())
        text = (await call.whole()).decode()
        if call.status >= 400:
            assert not TELLING.search(text) and len(text) < 500, text
        else:
            call.leave()
