"""Errors as clients see them."""

import json
import math

import pytest

from libs.contracts import errors
from libs.contracts.errors import HeadraceError, WireError
from services.gateway import errors_http
from services.gateway.crowd import Crowded

STATUSES = {
    errors.InvalidRequest: 400,
    errors.ContextTooLong: 400,
    errors.NoTokenAllowed: 400,
    errors.ModelNotFound: 404,
    errors.Unauthorized: 401,
    errors.Overloaded: 429,
    errors.Unavailable: 503,
    errors.DeadlineExceeded: 504,
    errors.WorkerLost: 503,
    errors.Poison: 500,
    errors.NumericalError: 500,
    errors.ExactnessViolation: 500,
    errors.Fenced: 503,
    errors.HeadraceError: 500,
}


@pytest.mark.parametrize("kind, status", STATUSES.items())
def test_each_error_has_a_status_also_after_the_wire(kind: type[HeadraceError], status: int) -> None:
    """What another service raised is answered like our own."""
    assert errors_http.status_of(kind("x")) == status
    assert errors_http.status_of(WireError.of(kind("x")).to_exception()) == status


def test_a_body_is_an_openai_error_object() -> None:
    """message, type, param and code, param null where no field is to blame."""
    body = json.loads(errors_http.body_of(errors.ContextTooLong("too long", param="messages")))

    assert body == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
    assert json.loads(errors_http.body_of(errors.Overloaded("full")))["error"]["param"] is None


@pytest.mark.parametrize(
    "error, expected",
    [
        (errors.NumericalError("x"), {b"x-should-retry": b"false"}),
        (errors.Poison("x"), {b"x-should-retry": b"false"}),
        (errors.DeadlineExceeded("x"), {b"x-should-retry": b"false"}),
        (errors.Unauthorized("x"), {b"www-authenticate": b"Bearer", b"x-should-retry": b"false"}),
        (errors.InvalidRequest("x"), {b"x-should-retry": b"false"}),
        (errors_http.Refused("request_timeout", "x"), {}),
    ],
)
def test_headers_say_whether_to_come_again(error: HeadraceError, expected: dict[bytes, bytes]) -> None:
    """A client that retries blindly would run the prompt again for nothing."""
    assert dict(errors_http.headers_of(error)) == expected


@pytest.mark.parametrize(
    "error, shortest_s, longest_s",
    [
        (errors.Overloaded("x"), 0.75, 1.5),
        (errors.Unavailable("x"), 0.75, 1.5),
        (Crowded("x", 8.0), 6.0, 12.0),
        (Crowded("x", 0.0), 0.75, 1.5),
        (Crowded("x", 1e9), 120.0, 120.0),
    ],
)
def test_who_may_come_again_hears_when_and_not_all_hear_the_same(
    error: HeadraceError, shortest_s: float, longest_s: float
) -> None:
    """By how long it would wait, in whole seconds and in milliseconds, 120 s at most."""
    told = [dict(errors_http.headers_of(error)) for _ in range(50)]

    for headers in told:
        assert shortest_s * 1000 - 1 <= int(headers[b"retry-after-ms"]) <= longest_s * 1000
        assert int(headers[b"retry-after"]) == math.ceil(int(headers[b"retry-after-ms"]) / 1000)
    assert len({headers[b"retry-after-ms"] for headers in told}) > 1 or shortest_s == longest_s


def test_an_event_of_an_error_is_one_data_line() -> None:
    """The official client raises on a truthy `error`; no id, no retry, no [DONE]."""
    event = errors_http.event_of(errors.WorkerLost("gone"))

    assert event.startswith(b'data: {"error":{"message":"gone"') and event.endswith(b"}\n\n")
