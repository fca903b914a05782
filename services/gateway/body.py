"""Reads a request's JSON body within its bounds: media type, size, and time to arrive."""

import asyncio
from contextlib import suppress

from services.gateway.errors_http import Refused
from services.gateway.reply import Receive, Scope

RECEIVE_TIMEOUT_S = 30.0
DISCARD_S, DISCARD_BYTES = 1.0, 64 << 20  # of a body that is refused


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int) -> bytes:
    """The whole body. Raises Refused, ConnectionResetError when the client left before its end."""
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refused("unsupported_media_type", "compressed bodies are not accepted")
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json":
        raise Refused("unsupported_media_type", "send the header content-type: application/json")
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit() or int(declared[:20]) > max_bytes:
        await _discard(receive)
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            return await _collect(receive, max_bytes)
    except TimeoutError:
        raise Refused("request_timeout", f"the body did not arrive within {RECEIVE_TIMEOUT_S:g} s") from None


async def _collect(receive: Receive, max_bytes: int) -> bytes:
    pieces, size_bytes = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client left while sending")
        pieces.append(message.get("body", b""))
        size_bytes += len(pieces[-1])
        if size_bytes > max_bytes:
            await _discard(receive)
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _discard(receive: Receive) -> None:
    """Take what still comes, for a while: a client that is cut off while it sends never reads its answer."""
    size_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_S):
            while size_bytes < DISCARD_BYTES:
                message = await receive()
                size_bytes += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _too_large(max_bytes: int) -> Refused:
    return Refused("body_too_large", f"the body may have at most {max_bytes} bytes")
