"""What is told about one request while it lives: its spans, its record in the trace ring, its share of the metrics."""

import time
from dataclasses import dataclass

from libs.contracts import conventions as names
from libs.contracts import flow
from libs.contracts.trace_records import Served
from libs.runtime.ring import OFF, Ring
from libs.runtime.tracing import Attribute, Span, is_exported, leaf, start_span, unsampled
from libs.timeline.phases import gateway_phases
from services.gateway.metrics import Metrics
from services.gateway.shapes import Usage
from services.gateway.timing import server_timing
from services.gateway.validate import ValidRequest


@dataclass(frozen=True, slots=True)
class ClientTrace:
    """What a client says of traces: its own context, and, with the operator's key, that ours is to be exported."""

    traceparent: str = ""
    is_wanted: bool = False


NO_TRACE = ClientTrace()


class Observer:
    """Mutable, owned by one request. A client's own trace context is noted and never trusted as a parent."""

    def __init__(
        self,
        request_id: str,
        request: ValidRequest,
        metrics: Metrics,
        arrived_s: float,
        client: ClientTrace = NO_TRACE,
        ring: Ring = OFF,
    ) -> None:
        self._metrics, self._ring = metrics, ring
        self._arrived_s = arrived_s
        self._first_token_s: float | None = None
        self._last_token_s: float | None = None
        self._deliver: Span | None = None
        self._accepted_ns = 0
        metrics.max_tokens.observe(request.params.max_tokens)
        self._root = start_span(flow.GATEWAY_REQUEST, attributes=_attributes(request_id, request) | _asked(client))
        self._traceparent = self._root.traceparent or unsampled()
        self.record = Served(
            request_id, self._trace_id, request.model, request.kind.value, request.stream, to_ns(arrived_s)
        )

    @property
    def traceparent(self) -> str:
        return self._traceparent

    @property
    def _exemplar(self) -> dict[str, str]:
        """Leads from a bucket to the trace."""
        return {"trace_id": self._trace_id} if self._trace_id else {}

    @property
    def _trace_id(self) -> str:
        parts = self.traceparent.split("-")
        return parts[1] if len(parts) > 1 else ""

    @property
    def server_timing(self) -> tuple[bytes, bytes]:
        """The header of this name."""
        return server_timing(self.record, self._accepted_ns)

    def accepted(self, now_s: float) -> None:
        """A tokenizer has made a sequence of it."""
        self._accepted_ns = to_ns(now_s)

    def residence(self, traceparent: str) -> None:
        """The request came to a worker whose span is `traceparent`: what it delivers belongs below that."""
        now_ns = time.time_ns()
        if self._deliver is not None:
            self._deliver.end(now_ns)
        self._deliver = start_span(flow.DELIVER, parent=traceparent, start_ns=now_ns)

    def tokens(self, count: int, now_s: float, last_s: float | None) -> None:
        """More tokens of a choice whose last one came at `last_s`."""
        if self._last_token_s is None:
            self._first_token_s = now_s
            self._metrics.ttft_s.observe(now_s - self._arrived_s, self._exemplar)
            self.record.first_row_ns = to_ns(now_s)
            self._root.set(**{names.TIME_TO_FIRST_CHUNK: now_s - self._arrived_s})
        if last_s is not None:
            self._metrics.itl_s.observe(now_s - last_s)
        self._last_token_s = now_s
        self._metrics.generation_tokens.inc(count)

    def wrote(self, text_ns: int) -> None:
        """The first text, made at `text_ns`, is out."""
        self.record.first_text_ns, self.record.first_write_ns = text_ns, time.monotonic_ns()

    def told(self) -> None:
        """All text is made and, of a stream, written."""
        self.record.told_ns = time.monotonic_ns()

    def end(self, reason: str, usage: Usage, now_s: float, *, error: str = "") -> None:
        """Once, whatever became of the request; `reason` is one of FINISHED_REASONS, `error` a code."""
        self._metrics.finished[reason].inc()
        self._metrics.e2e_s.observe(now_s - self._arrived_s, self._exemplar)
        if self._first_token_s is not None and self._last_token_s is not None:
            self._metrics.decode_s.observe(self._last_token_s - self._first_token_s)
            self._metrics.prompt_tokens.inc(usage.prompt_tokens)
            self._metrics.prompt_sizes.observe(usage.prompt_tokens)
            self._metrics.generation_sizes.observe(usage.completion_tokens)
        self._write_down(reason, usage, now_s, error)
        now_ns = time.time_ns()
        if self._deliver is not None:
            self._deliver.end(now_ns)
        attributes: dict[str, Attribute] = {
            names.FINISH_REASONS: reason,
            names.INPUT_TOKENS: usage.prompt_tokens,
            names.OUTPUT_TOKENS: usage.completion_tokens,
            names.CACHED_TOKENS: usage.cached_tokens,
        }
        self._root.set(**attributes)
        if is_exported(self.traceparent):
            for phase in gateway_phases(self.record):
                leaf(phase.name, self.traceparent, phase.start_ns, phase.end_ns)
        self._root.end(now_ns, error=error)

    def _write_down(self, reason: str, usage: Usage, now_s: float, error: str) -> None:
        record = self.record
        record.last_row_ns = to_ns(self._last_token_s) if self._last_token_s is not None else 0
        record.ended_ns, record.outcome, record.error = to_ns(now_s), reason, error
        record.prompt_tokens, record.cached_tokens = usage.prompt_tokens, usage.cached_tokens
        record.generated_tokens = usage.completion_tokens
        self._ring.put(record)


def to_ns(loop_s: float) -> int:
    """A time of the event loop, whose clock is the monotonic one."""
    return int(loop_s * 1e9)


def _asked(client: ClientTrace) -> dict[str, Attribute]:
    asked: dict[str, Attribute] = {}
    if client.traceparent:
        asked[names.CLIENT_TRACEPARENT] = client.traceparent[:64]
    if client.is_wanted:
        asked[names.EXPORT_WANTED] = True
    return asked


def _attributes(request_id: str, request: ValidRequest) -> dict[str, Attribute]:
    params = request.params
    return {
        names.OPERATION: request.kind.value,
        names.PROVIDER: "headrace",
        names.REQUEST_MODEL: request.model,
        names.MAX_TOKENS: params.max_tokens,
        names.TEMPERATURE: params.temperature,
        names.TOP_P: params.top_p,
        names.TOP_K: params.top_k,
        names.SEED: str(params.seed),  # may exceed an attribute's signed 64 bits
        names.STREAM: request.stream,
        names.RESPONSE_ID: request_id,
    }
