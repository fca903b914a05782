"""Nasty values in every field: each is refused as the client's error, or goes on as a request that can be sent."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from libs.contracts import codec
from libs.contracts.errors import InvalidRequest
from libs.contracts.messages import Request
from services.gateway import schemas
from services.gateway.charges import estimated_tokens
from services.gateway.tokens import DetokenizeBody, TokenizeBody
from services.gateway.validate import Kind, ValidRequest, validate
from tests.unit.gateway.conftest import CATALOG, LIMITS

NASTY: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    0.5,
    -0.0,
    1e308,
    5e-324,
    (1 << 31) - 1,
    1 << 31,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63) - 1,
    1 << 64,
    10**400,
    "",
    "x",
    "\x00",
    "\ud800",
    "é" * 10_000,
    [],
    {},
    [[]],
    [None],
    [0],
    [-1],
    [1 << 63],
    ["\udfff"],
    [{}],
    {"": {}},
    {"a": None},
    {"1": 1e308},
    {"-1": 0},
    {"type": "json_object"},
    {"type": "function"},
    {"include_usage": 1},
    [{"role": "user", "content": "\ud800"}],
    [{"role": "", "content": [{"type": "text"}]}],
    [0] * 20_000,
    ["x"] * 20_000,
]
RAW = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"NaN",
    b'{"model": NaN}',
    b'{"temperature": Infinity}',
    b'{"n": -Infinity}',
    b"\xff\xfe{}",
    b'{"model": "\xed\xa0\x80"}',
    b'{"model": "m", "model": "m"',
    b"\x00" * 100,
    b"{" * 5000,
    b"[" * 5000 + b"]" * 5000,
    b'{"prompt": ' + b"[" * 63 + b"]" * 63 + b"}",
    b'{"a":1e99999}',
    b"[" + b"1," * 500_000 + b"1]",
    b'"' * 9,
    b'{"n": 0x10}',
]
GIVEN: dict[Kind, dict[str, Any]] = {
    Kind.CHAT: {"model": LIMITS.model, "messages": [{"role": "user", "content": "hi"}]},
    Kind.COMPLETION: {"model": LIMITS.model, "prompt": "hi"},
}


def _bodies(kind: Kind, given: dict[str, Any], fields: type[msgspec.Struct]) -> Iterator[bytes]:
    for field in msgspec.structs.fields(fields):
        for value in NASTY:
            yield json.dumps({**given, field.name: value}).encode()
            yield json.dumps({**given, "stream": True, field.name: [value, value]}).encode()


def _sent(request: ValidRequest) -> bytes:
    """As it goes to the broker."""
    estimated_tokens(request.prompt)
    prompt, params = request.prompt, request.params
    return codec.encode(Request("r", 1, "g", request.model, "t", prompt, params, request.choices, 1, echo_ids=False))


@pytest.mark.parametrize("kind", Kind)
def test_no_value_of_any_field_is_more_than_a_refusal(kind: Kind) -> None:
    """With a message that a client can read, or as bytes on the wire."""
    body = schemas.ChatBody if kind is Kind.CHAT else schemas.CompletionBody
    taken = refused = 0
    for payload in _bodies(kind, GIVEN[kind], body):
        try:
            _sent(validate(kind, payload, CATALOG))
            taken += 1
        except InvalidRequest as error:
            msgspec.json.encode(error.message)
            assert 0 < len(error.message) < 500
            refused += 1
    assert taken > 100 and refused > 1000


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("payload", RAW)
def test_what_is_hardly_a_body_is_the_clients_error(kind: Kind, payload: bytes) -> None:
    """NaN, Infinity, broken UTF-8, depth, a million elements."""
    with pytest.raises(InvalidRequest):
        validate(kind, payload, CATALOG)


@pytest.mark.parametrize("kind", [TokenizeBody, DetokenizeBody])
def test_the_other_bodies_decode_or_are_refused(kind: type[msgspec.Struct]) -> None:
    """As those of the two endpoints."""
    for payload in (*RAW, *_bodies(Kind.CHAT, {"tokens": [1]}, kind)):
        try:
            schemas.decode(kind, payload)
        except InvalidRequest as error:
            msgspec.json.encode(error.message)
