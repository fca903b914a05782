"""Server-sent events as the official client reads them.

Only `data:` fields: after an `id:` line its decoder takes a keep-alive for an event, and a lone `retry:` likewise.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

PREFIX = b"data: "
SUFFIX = b"\n\n"
DONE = b"data: [DONE]\n\n"
# Unicode's ends of lines that JSON lets stand in a string; httpx, for one, ends an event's line there.
LINE_ENDS = tuple((end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\x85\u2028\u2029")


def payloads(events: bytes) -> Iterator[bytes]:
    """The JSON texts of whole events, without their frame."""
    for line in events.split(SUFFIX):
        if line:
            yield line.removeprefix(PREFIX)


def text_of(value: Any) -> bytes:
    """Its JSON text, on one line for every reader of lines."""
    text = msgspec.json.encode(value)
    if not text.isascii():
        for end, escaped in LINE_ENDS:
            text = text.replace(end, escaped)
    return text


def event(payload: bytes) -> bytes:
    """One event with a JSON text that holds no raw line break, as encoders write it."""
    return PREFIX + payload + SUFFIX
