"""Writes ASGI responses: whole bodies, errors, and the head of a stream."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from libs.contracts.errors import HeadraceError
from services.gateway import errors_http

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
EVENTS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


async def begin(send: Send, status: int, headers: Headers) -> None:
    """The head; the server holds it back until the first part of the body."""
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def part(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def whole(send: Send, body: bytes, *, status: int = 200, headers: Headers = ()) -> None:
    """A JSON response."""
    await begin(send, status, (JSON, (b"content-length", b"%d" % len(body)), *headers))
    await part(send, body, more=False)


async def error(send: Send, error: HeadraceError, headers: Headers = ()) -> None:
    """An error before anything else was sent."""
    await whole(
        send,
        errors_http.body_of(error),
        status=errors_http.status_of(error),
        headers=(*errors_http.headers_of(error), *headers),
    )
