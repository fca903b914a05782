"""Sets up the OpenTelemetry SDK of this process, which is imported only where spans are exported."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from libs.contracts.conventions import EXPORT_WANTED
from libs.runtime.version import product_version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import Sampler

    from libs.runtime.span_outbox import SpanOutbox

EXPORT_TIMEOUT_S = 2.0
SHUTDOWN_S = 1.0  # for the last spans; who stops a stack does not wait for a collector that hangs
TRACES_PATH = "/v1/traces"


class Export:
    """How the export of this process's spans goes."""

    def __init__(self, outbox: "SpanOutbox | None" = None) -> None:
        """Without one nothing is exported."""
        self._outbox = outbox

    @property
    def dropped(self) -> int:
        """Spans that found no room, or that the collector did not take."""
        return 0 if self._outbox is None else self._outbox.dropped


@asynccontextmanager
async def telemetry(
    service: str, instance: str, otlp_endpoint: str, sample_ratio: float = 1.0
) -> AsyncIterator[Export]:
    """Export this process's spans to an OTLP/HTTP collector until the block ends; nothing for an empty endpoint.

    `otlp_endpoint` is the collector's base address, e.g. http://127.0.0.1:4318. A collector that is slow or gone costs
    spans, never a request. `sample_ratio` of the traces that begin here are exported, chosen by their id; of
    others their parent decides.
    """
    if not otlp_endpoint:
        yield Export()
        return
    outbox = _outbox(otlp_endpoint.rstrip("/") + TRACES_PATH)
    provider = _provider(service, instance, sample_ratio)
    provider.add_span_processor(outbox)
    trace.set_tracer_provider(provider)
    try:
        yield Export(outbox)
    finally:
        flushing = threading.Thread(target=provider.shutdown, name="otel-shutdown", daemon=True)
        flushing.start()  # a thread that dies with the process: its own limit is half a minute
        await asyncio.to_thread(flushing.join, SHUTDOWN_S)


def _outbox(endpoint: str) -> "SpanOutbox":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # a tenth of a second to import

    from libs.runtime.span_outbox import SpanOutbox

    return SpanOutbox(OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S))


def _provider(service: str, instance: str, sample_ratio: float) -> "TracerProvider":
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased

    return TracerProvider(
        resource=Resource.create(
            {
                "service.name": service,
                "service.namespace": "headrace",
                "service.instance.id": instance,
                "service.version": product_version(),
                "process.pid": os.getpid(),
            }
        ),
        sampler=ParentBased(_sampler(sample_ratio)),
        shutdown_on_exit=False,  # the block's end shuts down, with its own time limit
    )


def _sampler(ratio: float) -> "Sampler":
    """Of the traces that begin here: those that are wanted, and a share of the others, chosen by their id."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult, TraceIdRatioBased

    class WantedOrRatio(Sampler):
        def should_sample(
            self,
            parent_context: Any,
            trace_id: int,
            name: str,
            kind: Any = None,
            attributes: Any = None,
            links: Any = None,
            trace_state: Any = None,
        ) -> SamplingResult:
            is_wanted = bool(attributes and attributes.get(EXPORT_WANTED))
            chosen = ALWAYS_ON if is_wanted else others
            return chosen.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

        def get_description(self) -> str:
            return f"wanted, or {others.get_description()}"

    others = TraceIdRatioBased(ratio)
    return WantedOrRatio()
