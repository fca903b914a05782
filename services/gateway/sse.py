"""Server-sent events as the official client reads them.

Only `data:` fields: after an `id:` line its decoder takes a keep-alive for an event, and a lone `retry:` likewise.
"""

PREFIX = b"data: "
SUFFIX = b"\n\n"
DONE = b"data: [DONE]\n\n"


def event(payload: bytes) -> bytes:
    """One event with a JSON text that holds no raw line break, as encoders write it."""
    return PREFIX + payload + SUFFIX
