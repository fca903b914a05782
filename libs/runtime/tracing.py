"""Spans whose context travels as W3C traceparent strings; without an SDK the parent's context is passed on.

Times are wall time in nanoseconds since 1970, as OpenTelemetry wants them; `wall_ns` converts a monotonic time.
"""

import re
import secrets
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from types import TracebackType

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, StatusCode, TraceFlags, set_span_in_context

Attribute = str | int | float | bool

SAMPLED = frozenset("13579bdf")  # how a sampled context ends: another flag tells how its id was drawn
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class Span:
    """One span; `traceparent` names it to the next hop ("" when there is no trace at all).

    As a context manager it ends with its block, failed when an exception leaves that.
    """

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.traceparent = _format(span.get_span_context())

    def __enter__(self) -> "Span":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end(error=getattr(error, "code", "internal") if error is not None else "")

    def set(self, **attributes: Attribute) -> None:
        self._span.set_attributes(attributes)

    def event(self, name: str, **attributes: Attribute) -> None:
        self._span.add_event(name, attributes)

    def end(self, end_ns: int | None = None, error: str = "") -> None:
        """End the span; `error` is an error code, and marks it failed."""
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(StatusCode.ERROR, error)
        self._span.end(end_ns)


def start_span(
    name: str,
    *,
    parent: str = "",
    attributes: Mapping[str, Attribute] | None = None,
    start_ns: int | None = None,
) -> Span:
    """Start a span below `parent` (a traceparent; "" or a malformed one starts a trace)."""
    tracer = trace.get_tracer("headrace")
    return Span(tracer.start_span(name, _context(parent), attributes=attributes, start_time=start_ns))


def is_exported(traceparent: str) -> bool:
    """Whether a collector gets this trace, as far as whoever began it could tell."""
    return traceparent[-1:] in SAMPLED


def leaf(
    name: str,
    parent: str,
    start_ns: int,
    end_ns: int,
    *,
    links: Iterable[str] = (),
    attributes: Mapping[str, Attribute] | None = None,
) -> str:
    """A span of what is over, below `parent` ("" begins a trace); its context. Nothing below a parent not exported.

    Times are of this host's monotonic clock; `links` are the contexts of spans that it has to do with.
    """
    if parent and not is_exported(parent):
        return ""
    contexts = (_parsed(link) for link in links)
    span = trace.get_tracer("headrace").start_span(
        name,
        _context(parent),
        attributes=attributes,
        links=[Link(context) for context in contexts if context is not None],
        start_time=wall_ns(start_ns),
    )
    span.end(wall_ns(end_ns))
    return _format(span.get_span_context())


def monotonic_ns(moment: datetime) -> int:
    """A wall time as a moment of this host's monotonic clock."""
    return int(moment.timestamp() * 1e9) - time.time_ns() + time.monotonic_ns()


def wall_ns(monotonic_ns: int) -> int:
    """The wall time of a moment of this host's monotonic clock."""
    return time.time_ns() - time.monotonic_ns() + monotonic_ns


def _context(traceparent: str) -> Context:
    """A context that holds `traceparent` alone: the one of the running task must not become the parent."""
    parsed = _parsed(traceparent)
    return Context() if parsed is None else set_span_in_context(NonRecordingSpan(parsed), Context())


@lru_cache(maxsize=1024)
def _parsed(traceparent: str) -> SpanContext | None:
    """Kept: a step is linked to the stays in its batch one after the other, and these are in the next step again."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or traceparent.startswith("ff"):
        return None
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))


def unsampled() -> str:
    """The context of a new trace that no collector will get: the local trace ring and exemplars name it."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00"


def _format(context: SpanContext) -> str:
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"
