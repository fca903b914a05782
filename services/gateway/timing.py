"""Where a request's time has gone so far, as the header Server-Timing that browsers and curl show. Pure."""

from collections.abc import Iterator

from libs.contracts.trace_records import Served

NAME = b"server-timing"


def server_timing(served: Served, accepted_ns: int) -> tuple[bytes, bytes]:
    """What has ended: reading and checking it, tokenizing, its turn and its prompt, and, of a whole answer, the rest.

    `accepted_ns` is when the tokenizer was done.
    """
    return NAME, b", ".join(b"%b;dur=%.1f" % (name, ms) for name, ms in _phases(served, accepted_ns))


def _phases(served: Served, accepted_ns: int) -> Iterator[tuple[bytes, float]]:
    ends = (
        (b"receive", served.queued_ns),
        (b"tokenize", accepted_ns),
        (b"prefill", served.first_row_ns),
        (b"decode", served.told_ns),
    )
    start_ns = served.arrived_ns
    for name, end_ns in ends:
        if end_ns > start_ns:
            yield name, (end_ns - start_ns) / 1e6
            start_ns = end_ns
