"""What a client may say about when its request is to be served."""

from typing import Any

import msgspec
import pytest

from libs.contracts.errors import InvalidRequest
from services.gateway.validate import Kind, validate
from tests.unit.gateway.asgi import events, text_of
from tests.unit.gateway.backend import MODEL
from tests.unit.gateway.conftest import CATALOG, running_gateway
from tests.unit.gateway.test_generate import play
from tests.unit.gateway.test_validate import complete


def test_priority_and_timeout_are_neutral_unless_given() -> None:
    """Class 0, and as long as the server lets it; what is given goes on as it is."""
    assert (complete().priority, complete().timeout_s) == (0, 0.0)
    assert (complete(priority=-100, timeout=0.5).priority, complete(timeout=2).timeout_s) == (-100, 2.0)


@pytest.mark.parametrize(
    "field, values",
    [
        ("priority", [-101, 101, 1 << 70, 1.0, "high", True]),
        ("timeout", [0, -1, 86_401, 1e308, "soon", True]),
    ],
)
def test_a_priority_or_timeout_beyond_its_bounds_is_named(field: str, values: list[Any]) -> None:
    """Neither is cut: a client that asks for the impossible is told."""
    for value in values:
        with pytest.raises(InvalidRequest) as raised:
            complete(**{field: value})
        assert raised.value.param == field


def test_a_key_bounds_the_priority() -> None:
    """Who asks for none gets the earliest that is both allowed and no earlier than usual."""
    payload = msgspec.json.encode({"model": MODEL, "prompt": "hi"})
    assert validate(Kind.COMPLETION, payload, CATALOG, first_priority=7).priority == 7
    assert validate(Kind.COMPLETION, payload, CATALOG, first_priority=-7).priority == 0


async def test_a_timeout_below_the_servers_limit_is_the_deadline() -> None:
    """It counts when requests are put in order; one beyond the limit says nothing that the server does not."""
    async with running_gateway(request_timeout_s=30.0) as gateway:
        calls = [gateway.complete(timeout=timeout) for timeout in (5, 3600)]
        timed, usual = await gateway.taken(), await gateway.taken()
        for call in calls:
            call.leave()

    assert (timed.is_timed, usual.is_timed) == (True, False)
    assert 24_000 < usual.deadline_unix_ms - timed.deadline_unix_ms < 26_000


async def test_a_timeout_that_has_passed_ends_the_request() -> None:
    """504 at its own time, long before the server's."""
    async with running_gateway(request_timeout_s=30.0) as gateway:
        call = gateway.complete(timeout=0.05)
        await gateway.taken()
        error = (await call.json())["error"]

    assert (call.status, error["code"]) == (504, "deadline_exceeded")


async def test_a_timeout_that_passes_in_a_stream_is_its_last_event() -> None:
    """What was generated until then has been sent; no [DONE] follows."""
    async with running_gateway(request_timeout_s=30.0) as gateway:
        call = gateway.complete(timeout=0.2, stream=True)
        await play(gateway, call, b"abc", "")
        *chunks, last = events(await call.whole())

    assert (call.status, text_of(chunks)) == (200, "abc")
    assert last["error"]["code"] == "deadline_exceeded"
