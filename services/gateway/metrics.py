"""Prometheus metrics under the names that dashboards, autoscalers and load tools already know from vLLM."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from libs.contracts.messages import CellStatus

MODEL = ("model_name",)
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# Edges as in vLLM, so that its dashboards draw ours.
TTFT_EDGES_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
ITL_EDGES_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
E2E_EDGES_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)

FINISHED_REASONS = ("stop", "length", "abort", "error")


class _Cells(Collector):
    """What schedulers count, as they last told it."""

    def __init__(self) -> None:
        self.statuses: tuple[CellStatus, ...] = ()

    def collect(self) -> Iterator[CounterMetricFamily]:
        moved = CounterMetricFamily(
            "headrace_moved_sequences", "Sequences taken from workers that could not confirm it.", labels=("cell",)
        )
        recomputed = CounterMetricFamily(
            "headrace_recomputed_tokens",
            "Tokens whose KV a lost worker had written and that was written again.",
            labels=("cell",),
        )
        for status in self.statuses:
            moved.add_metric((status.cell,), status.moved_sequences)
            recomputed.add_metric((status.cell,), status.recomputed_tokens)
        yield from (moved, recomputed)


class Metrics:
    """This process's metrics, in a registry of their own."""

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self._running = self._gauge("vllm:num_requests_running", "Requests whose first token is here.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Requests without a token yet.")
        self.ttft_s = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", TTFT_EDGES_S)
        self.itl_s = self._histogram("vllm:inter_token_latency_seconds", "Between two reports of tokens.", ITL_EDGES_S)
        self.e2e_s = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to the end.", E2E_EDGES_S)
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens of requests that were computed.")
        self.generation_tokens = self._counter("vllm:generation_tokens", "Generated tokens.")
        self.exactness_violations = self._counter("headrace:exactness_violation", "Two reports of a position differed.")
        self.stale_rows = self._counter("headrace:stale_rows", "Tokens dropped: of an attempt that was taken back.")
        self.repairs = self._counter("headrace:token_repairs", "Times that missing tokens were asked for again.")
        self._cells = _Cells()
        self.registry.register(self._cells)
        success = Counter(
            "vllm:request_success", "Requests by outcome.", (*MODEL, "finished_reason"), registry=self.registry
        )
        self.finished = {reason: success.labels(model, reason) for reason in FINISHED_REASONS}

    def watch(self, *, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Read the gauges from their owner whenever they are asked for."""
        self._running.set_function(running)
        self._waiting.set_function(waiting)

    def exposition(self, cells: Iterable[CellStatus] = ()) -> bytes:
        """The text of a scrape; the cells' own counters start again with each term of a scheduler."""
        self._cells.statuses = tuple(cells)
        return generate_latest(self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, MODEL, registry=self.registry).labels(self._model)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, MODEL, registry=self.registry).labels(self._model)

    def _histogram(self, name: str, text: str, edges_s: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, MODEL, buckets=edges_s, registry=self.registry).labels(self._model)
