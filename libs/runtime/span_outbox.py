"""Spans on their way to a collector: a bounded queue, a thread that sends what is in it, and a count of what was lost.

Whoever ends a span pays for an append. A collector that is slow, refuses or is gone costs spans, never a request.
"""

import threading
from collections import deque
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

QUEUE_SPANS: Final = 8192
BATCH_SPANS: Final = 512
COMPANY_S: Final = 1.0  # how long a span waits for others


class SpanOutbox(SpanProcessor):
    """Begins its thread at once; `shutdown` ends it after a last attempt."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.dropped = 0
        self._exporter = exporter
        self._queue: deque[ReadableSpan] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="span-outbox", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        if not span.context.trace_flags.sampled:
            return
        if len(self._queue) >= QUEUE_SPANS:
            self.dropped += 1
        else:
            self._queue.append(span)

    def shutdown(self) -> None:
        """Takes as long as the exporter does for what is left; what it does not take then is lost."""
        self._closing.set()
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._closing.wait(COMPANY_S):
            self._send()
        self._send()

    def _send(self) -> None:
        """Until the queue is empty, or a batch is not taken: what came meanwhile waits for the next time."""
        is_taken = True
        while self._queue and is_taken:
            batch = [self._queue.popleft() for _ in range(min(BATCH_SPANS, len(self._queue)))]
            is_taken = self._is_taken(batch)
            if not is_taken:
                self.dropped += len(batch)

    def _is_taken(self, batch: list[ReadableSpan]) -> bool:
        try:
            return self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:  # of the exporter's transport, whatever it may be: this thread must outlive it
            return False
