"""Spans on their way to a collector: bounded, counted, and in nobody's way."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from libs.runtime import span_outbox
from libs.runtime.span_outbox import SpanOutbox


class Collector(SpanExporter):
    """Takes batches, unless it is told to fail or to hang."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.answer: SpanExportResult | Exception = SpanExportResult.SUCCESS
        self.open = threading.Event()
        self.open.set()
        self.is_asked = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_asked.set()
        assert self.open.wait(5)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is SpanExportResult.SUCCESS:
            self.names += [span.name for span in spans]
        return self.answer

    def shutdown(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_outbox, "COMPANY_S", 0.01)


def ended(outbox: SpanOutbox, count: int, **options: Any) -> None:
    """End so many spans."""
    provider = TracerProvider(shutdown_on_exit=False, **options)
    provider.add_span_processor(outbox)
    tracer = provider.get_tracer("test")
    for number in range(count):
        tracer.start_span(f"s{number}").end()


def test_spans_arrive_in_their_order_the_last_ones_at_the_end() -> None:
    """What ended right before the process is sent as well."""
    collector = Collector()
    outbox = SpanOutbox(collector)
    ended(outbox, 5)

    outbox.shutdown()

    assert collector.names == ["s0", "s1", "s2", "s3", "s4"] and outbox.dropped == 0


def test_what_is_not_sampled_takes_no_room() -> None:
    """Its context travels all the same."""
    collector = Collector()
    outbox = SpanOutbox(collector)
    ended(outbox, 5, sampler=ALWAYS_OFF)

    outbox.shutdown()

    assert collector.names == [] and outbox.dropped == 0


def test_a_collector_that_hangs_holds_nobody_up_and_fills_a_bounded_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds no room is counted; what found some arrives when the collector goes on."""
    monkeypatch.setattr(span_outbox, "QUEUE_SPANS", 10)
    collector = Collector()
    collector.open.clear()
    outbox = SpanOutbox(collector)
    ended(outbox, 1)
    assert collector.is_asked.wait(5)
    began_s = time.monotonic()

    ended(outbox, 1000)
    took_s = time.monotonic() - began_s
    collector.open.set()
    outbox.shutdown()

    assert took_s < 1
    assert outbox.dropped == 990 and len(collector.names) == 11


@pytest.mark.parametrize("answer", [SpanExportResult.FAILURE, OSError("refused")])
def test_what_the_collector_does_not_take_is_counted_and_the_next_is_tried(
    answer: SpanExportResult | Exception,
) -> None:
    """Nothing is sent twice, and an error of the transport ends no thread."""
    collector = Collector()
    collector.answer = answer
    outbox = SpanOutbox(collector)
    ended(outbox, 3)
    while outbox.dropped < 3:
        assert collector.is_asked.wait(5)
    collector.answer = SpanExportResult.SUCCESS

    ended(outbox, 2)
    outbox.shutdown()

    assert outbox.dropped == 3 and collector.names == ["s0", "s1"]
