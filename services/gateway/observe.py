"""What is told about one request while it lives: its spans, and its share of the metrics.

Names of attributes follow OpenTelemetry's conventions for generative AI; they are still marked as in development.
"""

import time

from libs.contracts import flow
from libs.runtime.tracing import Attribute, Span, start_span
from services.gateway.metrics import Metrics
from services.gateway.shapes import Usage
from services.gateway.validate import ValidRequest


class Observer:
    """Mutable, owned by one request. A client's own trace context is noted and never trusted as a parent."""

    def __init__(
        self, request_id: str, request: ValidRequest, metrics: Metrics, arrived_s: float, client_traceparent: str = ""
    ) -> None:
        self._metrics = metrics
        self._arrived_s = arrived_s
        self._first_token_s: float | None = None
        self._last_token_s: float | None = None
        self._deliver: Span | None = None
        metrics.max_tokens.observe(request.params.max_tokens)
        self._root = start_span(flow.GATEWAY_REQUEST, attributes=_attributes(request_id, request))
        if client_traceparent:
            self._root.set(**{"headrace.client.traceparent": client_traceparent[:64]})

    @property
    def traceparent(self) -> str:
        return self._root.traceparent

    @property
    def _exemplar(self) -> dict[str, str]:
        """Leads from a bucket to the trace."""
        parts = self.traceparent.split("-")
        return {"trace_id": parts[1]} if len(parts) > 1 else {}

    def residence(self, traceparent: str) -> None:
        """The request came to a worker whose span is `traceparent`: what it delivers belongs below that."""
        now_ns = time.time_ns()
        if self._deliver is not None:
            self._deliver.end(now_ns)
        self._deliver = start_span(flow.DELIVER, parent=traceparent, start_ns=now_ns)

    def tokens(self, count: int, now_s: float) -> None:
        if self._last_token_s is None:
            self._first_token_s = now_s
            self._metrics.ttft_s.observe(now_s - self._arrived_s, self._exemplar)
            self._root.set(**{"gen_ai.response.time_to_first_chunk": now_s - self._arrived_s})
        else:
            self._metrics.itl_s.observe(now_s - self._last_token_s)
            self._metrics.tpot_s.observe(now_s - self._last_token_s)
        self._last_token_s = now_s
        self._metrics.generation_tokens.inc(count)

    def end(self, reason: str, usage: Usage, now_s: float, *, error: str = "") -> None:
        """Once, whatever became of the request; `reason` is one of FINISHED_REASONS, `error` a code."""
        self._metrics.finished[reason].inc()
        self._metrics.e2e_s.observe(now_s - self._arrived_s, self._exemplar)
        if self._first_token_s is not None and self._last_token_s is not None:
            self._metrics.decode_s.observe(self._last_token_s - self._first_token_s)
            self._metrics.prompt_tokens.inc(usage.prompt_tokens)
            self._metrics.prompt_sizes.observe(usage.prompt_tokens)
            self._metrics.generation_sizes.observe(usage.completion_tokens)
        now_ns = time.time_ns()
        if self._deliver is not None:
            self._deliver.end(now_ns)
        attributes: dict[str, Attribute] = {
            "gen_ai.response.finish_reasons": reason,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        }
        self._root.set(**attributes)
        self._root.end(now_ns, error=error)


def _attributes(request_id: str, request: ValidRequest) -> dict[str, Attribute]:
    params = request.params
    return {
        "gen_ai.operation.name": request.kind.value,
        "gen_ai.provider.name": "headrace",
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": params.top_k,
        "gen_ai.request.seed": str(params.seed),  # may exceed an attribute's signed 64 bits
        "gen_ai.request.stream": request.stream,
        "gen_ai.response.id": request_id,
    }
