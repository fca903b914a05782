"""The scheduler's metrics: what its State holds, read when asked for, and what steps and requests took.

Names and edges are vLLM's where it has them. Its `engine` is our cell.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from libs.contracts.messages import StepResult
from services.scheduler.events import Started
from services.scheduler.state import State
from services.scheduler.swap_cost import RECOMPUTE, SWAP

LABELS = ("model_name", "engine")
REQUEST_EDGES_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
STEP_EDGES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
BATCH_EDGES_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:gpu_cache_usage_factor")


class Metrics:
    """In a registry of its own."""

    def __init__(self, state: State) -> None:
        self.registry = CollectorRegistry()
        labels = (state.policy.model, state.policy.cell)

        def histogram(name: str, text: str, edges: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, LABELS, buckets=edges, registry=self.registry).labels(*labels)

        self._queue_s = histogram("vllm:request_queue_time_seconds", "Waiting, for any reason.", REQUEST_EDGES_S)
        self._prefill_s = histogram("vllm:request_prefill_time_seconds", "Admission to first token.", REQUEST_EDGES_S)
        self._batch = histogram("vllm:iteration_tokens_total", "Tokens of a step.", BATCH_EDGES_TOKENS)
        self._step_s = histogram("headrace:step_seconds", "Duration of a step.", STEP_EDGES_S)
        self.registry.register(StateCollector(state, labels))

    def started(self, command: Started) -> None:
        self._queue_s.observe(command.queue_s)
        self._prefill_s.observe(command.prefill_s)

    def step(self, result: StepResult) -> None:
        if result.batch_tokens:
            self._batch.observe(result.batch_tokens)
            self._step_s.observe((result.ended_ns - result.started_ns) / 1e9)


class StateCollector(Collector):
    """Gauges and counters that the State keeps anyway."""

    def __init__(self, state: State, labels: tuple[str, str]) -> None:
        self._state, self._labels = state, labels

    def collect(self) -> Iterable[Metric]:
        state, pool, counts = self._state, self._state.memory.pool, self._state.counts
        usage = pool.held_blocks / pool.total_blocks if pool.total_blocks else 0.0
        for name in KV_USAGE:
            yield self._gauge(name, "Share of KV blocks that requests hold, 0 to 1.", usage)
        yield self._gauge("headrace:kv_blocks_cached", "KV blocks kept for their prefix alone.", len(pool.cached))
        yield self._gauge(
            "headrace:kv_blocks_freeing", "Freed KV blocks that a worker may still use.", len(pool.freeing)
        )
        yield self._gauge("headrace:term", "The reign of this scheduler.", state.term)
        yield self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up.", counts["prefix_query_tokens"])
        yield self._counter("vllm:prefix_cache_hits", "Prompt tokens found.", counts["prefix_hit_tokens"])
        preempted = {way: counts[f"preempted_{way}"] for way in (SWAP, RECOMPUTE)}
        yield self._counter("vllm:num_preemptions", "Requests that gave way.", sum(preempted.values()))
        yield self._preemptions(preempted)
        yield self._gauge("headrace:host_blocks_used", "Blocks of the host tier in use.", state.memory.tier.held_blocks)
        yield self._gauge("vllm:num_requests_swapped", "Requests whose blocks rest there.", len(state.swapped))
        yield self._counter(
            "headrace_moved_sequences",
            "Sequences taken from workers that could not confirm it.",
            counts["moved_sequences"],
        )
        yield self._counter(
            "headrace_recomputed_tokens",
            "Tokens whose KV a lost worker had written and that was written again.",
            counts["recomputed_tokens"],
        )
        yield self._counter("headrace_audit_violations", "Findings of audits: bugs.", counts["audit_violation"])
        yield self._cache_config()
        yield self._events()

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def _preemptions(self, preempted: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily("headrace_preemptions", "Requests that gave way, by how.", labels=(*LABELS, "way"))
        for way, count in preempted.items():
            family.add_metric((*self._labels, way), count)
        return family

    def _cache_config(self) -> Metric:
        facts = self._state.facts
        names = (*LABELS, "block_size", "num_gpu_blocks")
        family = GaugeMetricFamily("vllm:cache_config_info", "Shape of the KV pool.", labels=names)
        if facts is not None:
            family.add_metric((*self._labels, str(facts.block_tokens), str(facts.pool_blocks)), 1)
        return family

    def _events(self) -> Metric:
        family = CounterMetricFamily(
            "headrace:scheduler_events", "What was counted, by kind.", labels=(*LABELS, "event")
        )
        for event, count in sorted(self._state.counts.items()):
            family.add_metric((*self._labels, event), count)
        return family
