"""Server-sent events as the official client reads them.

Only `data:` fields: after an `id:` line its decoder takes a keep-alive for an event, and a lone `retry:` likewise.
"""

from collections.abc import Iterator

PREFIX = b"data: "
SUFFIX = b"\n\n"
DONE = b"data: [DONE]\n\n"


def payloads(events: bytes) -> Iterator[bytes]:
    """The JSON texts of whole events, without their frame."""
    for line in events.split(SUFFIX):
        if line:
            yield line.removeprefix(PREFIX)


def event(payload: bytes) -> bytes:
    """One event with a JSON text that holds no raw line break, as encoders write it."""
    return PREFIX + payload + SUFFIX
