"""The phases of a request that one process knows by itself, from its own record: end to end. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from libs.contracts import conventions as names
from libs.contracts.trace_records import Served, Tokenized


class Phase(NamedTuple):
    name: str
    start_ns: int
    end_ns: int


def gateway_phases(served: Served) -> Iterator[Phase]:
    """Before the request is queued, on the way of its first text, and after its last token."""
    entry = ((names.RECEIVE, served.read_ns), (names.VALIDATE, served.validated_ns), (names.PUBLISH, served.queued_ns))
    yield from _end_to_end(served.arrived_ns, entry)
    if served.first_row_ns:
        first = ((names.DETOKENISE, served.first_text_ns), (names.WRITE, served.first_write_ns))
        yield from _end_to_end(served.first_row_ns, first)
    if served.last_row_ns and served.last_row_ns > served.first_row_ns:
        last = ((names.DETOKENISE, served.told_ns), (names.WRITE, served.ended_ns))
        yield from _end_to_end(max(served.last_row_ns, served.first_write_ns), last)


def tokenizer_ends(tokenized: Tokenized) -> Iterator[tuple[str, int]]:
    """(phase, its end), from the moment at which the request was pulled."""
    yield names.GRAMMAR, tokenized.grammar_ns
    yield names.PULL, tokenized.begun_ns
    yield names.TEMPLATE, tokenized.rendered_ns
    yield names.ENCODE, tokenized.encoded_ns
    yield names.RETURN, tokenized.awake_ns
    yield names.HASH, tokenized.hashed_ns
    yield names.LOOK_UP, tokenized.looked_up_ns


def tokenizer_phases(tokenized: Tokenized) -> Iterator[Phase]:
    ends = (*tokenizer_ends(tokenized), (names.PUBLISH_SEQUENCE, tokenized.published_ns))
    return _end_to_end(tokenized.pulled_ns, ends)


def _end_to_end(start_ns: int, ends: Iterable[tuple[str, int]]) -> Iterator[Phase]:
    """What never ended, or before it began, is none."""
    for name, end_ns in ends:
        if end_ns > start_ns:
            yield Phase(name, start_ns, end_ns)
            start_ns = end_ns
