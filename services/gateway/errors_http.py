"""Errors as HTTP: the one table from an error's code to a status, and the bodies that OpenAI clients expect."""

import math
import random
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from libs.contracts.errors import HeadraceError
from services.gateway import sse
from services.gateway.backoff import Barred
from services.gateway.crowd import Crowded
from services.gateway.quota_headers import RateLimited, quota_headers

RETRY_AFTER_S = (1.0, 120.0)  # the official client does not come again for longer ones
SPREAD = (0.75, 1.5)  # of the time that is told, so that not all who were refused come back at once
INVALID = "invalid_request_error"
SERVER = "server_error"
UNAVAILABLE = "service_unavailable_error"

# code → (status, OpenAI's type of error)
STATUS: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "invalid_request": (400, INVALID),
        "context_length_exceeded": (400, INVALID),
        "no_token_allowed": (400, INVALID),
        "invalid_api_key": (401, "authentication_error"),
        "forbidden": (403, "permission_error"),
        "model_not_found": (404, INVALID),
        "not_found": (404, INVALID),
        "method_not_allowed": (405, INVALID),
        "request_timeout": (408, INVALID),
        "body_too_large": (413, INVALID),
        "unsupported_media_type": (415, INVALID),
        "overloaded": (429, "rate_limit_error"),
        "deadline_unreachable": (429, "rate_limit_error"),
        "rate_limit_exceeded": (429, "rate_limit_error"),
        "unavailable": (503, UNAVAILABLE),
        "fenced": (503, UNAVAILABLE),
        "worker_lost": (503, UNAVAILABLE),
        "deadline_exceeded": (504, "timeout_error"),
        "poison": (500, SERVER),
    }
)
UNEXPECTED = (500, SERVER)


class Refused(HeadraceError):
    """What only HTTP can get wrong: a route, a method, a media type, a body's size. Never crosses the wire."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def status_of(error: HeadraceError) -> int:
    return STATUS.get(error.code, UNEXPECTED)[0]


def body_of(error: HeadraceError) -> bytes:
    """{"error": {message, type, param, code}}."""
    kind = STATUS.get(error.code, UNEXPECTED)[1]
    return msgspec.json.encode(
        {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}
    )


def headers_of(error: HeadraceError) -> Iterable[tuple[bytes, bytes]]:
    """What tells a client when to come back, or not to. A blind retry would fail again, or run the prompt again."""
    status = status_of(error)
    if status in (429, 503):
        retry_after_ms = int(_retry_after_s(error) * 1000)
        yield b"retry-after", b"%d" % math.ceil(retry_after_ms / 1000)
        yield b"retry-after-ms", b"%d" % retry_after_ms
    elif status != 408 and not error.retryable:
        yield b"x-should-retry", b"false"
    if isinstance(error, RateLimited):
        yield from quota_headers(error.quota)
    if status == 401:
        yield b"www-authenticate", b"Bearer"


def _retry_after_s(error: HeadraceError) -> float:
    shortest_s, longest_s = RETRY_AFTER_S
    wanted_s = error.retry_after_s if isinstance(error, Barred | Crowded | RateLimited) else shortest_s
    return min(longest_s, max(shortest_s, wanted_s) * random.uniform(*SPREAD))


def event_of(error: HeadraceError) -> bytes:
    """How a started stream ends when it fails: nothing follows this event."""
    return sse.event(body_of(error))
