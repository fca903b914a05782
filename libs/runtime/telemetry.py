"""Sets up the OpenTelemetry SDK of this process; the only module that imports it, and only where spans are exported."""

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

QUEUE_SPANS = 8192  # beyond this the oldest are dropped: serving never waits for a collector
BATCH_SPANS = 512
EXPORT_DELAY_MS = 1000.0
EXPORT_TIMEOUT_S = 2.0
SHUTDOWN_S = 2.0
TRACES_PATH = "/v1/traces"


@asynccontextmanager
async def telemetry(service: str, instance: str, otlp_endpoint: str, sample_ratio: float = 1.0) -> AsyncIterator[None]:
    """Export this process's spans to an OTLP/HTTP collector until the block ends; nothing for an empty endpoint.

    `otlp_endpoint` is the collector's base address, e.g. http://127.0.0.1:4318. A collector that is slow or gone costs
    spans, never a request. `sample_ratio` of the traces that begin here are exported, chosen by their id; of
    others their parent decides.
    """
    if not otlp_endpoint:
        yield
        return
    provider = _provider(service, instance, otlp_endpoint.rstrip("/") + TRACES_PATH, sample_ratio)
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        flushing = threading.Thread(target=provider.shutdown, name="otel-shutdown", daemon=True)
        flushing.start()  # a thread that dies with the process: its own limit is half a minute
        await asyncio.to_thread(flushing.join, SHUTDOWN_S)


def _provider(service: str, instance: str, endpoint: str, sample_ratio: float) -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # a tenth of a second to import
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased

    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
    processor = BatchSpanProcessor(
        exporter,
        max_queue_size=QUEUE_SPANS,
        schedule_delay_millis=EXPORT_DELAY_MS,
        max_export_batch_size=BATCH_SPANS,
        export_timeout_millis=EXPORT_TIMEOUT_S * 1000,
    )
    provider = TracerProvider(
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
    provider.add_span_processor(processor)
    return provider


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
