"""The metrics of a running stack, as a scraper reads them."""

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.e2e.client import complete, until
from tests.e2e.conftest import Stack
from tests.unit.exposition import complaints

pytestmark = pytest.mark.e2e

OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
GAUGES = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "gpu_cache_usage_factor",
    "cache_config_info",
)
COUNTERS = (
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "num_preemptions_total",
    "admission_rejections_total",
)
HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
)
EXPECTED = {*GAUGES, *COUNTERS, *(f"{name}_bucket" for name in HISTOGRAMS)}


async def ask(stack: Stack, max_tokens: int) -> None:
    """A prompt of 40 ids, the same each time."""
    body = {"model": stack.model, "prompt": list(range(3000, 3040)), "max_tokens": max_tokens, "ignore_eos": True}
    await complete(stack.base_url, body)


def scrape(stack: Stack, *labels: str) -> dict[str, float]:
    """Sums over labels, by sample name without its prefix, and by the value of each of `labels` that a sample has."""
    text = httpx.get(stack.base_url.removesuffix("/v1") + "/metrics").text
    sums: dict[str, float] = {}
    for family in parse_text(text):
        for sample in family.samples:
            name = sample.name.removeprefix("vllm:")
            sums[name] = sums.get(name, 0.0) + sample.value
            for label in sample.labels.keys() & labels:
                by_label = f"{name} {sample.labels[label]}"
                sums[by_label] = sums.get(by_label, 0.0) + sample.value
    return sums


async def test_every_known_name_is_there_and_moves(hybrid: Stack) -> None:
    """One request of 8 tokens, twice: the second finds its prompt's prefix."""
    before = scrape(hybrid)
    assert before.keys() >= EXPECTED

    for _ in range(2):
        await ask(hybrid, 8)
    moved = {name: value - before.get(name, 0.0) for name, value in scrape(hybrid).items()}

    assert (moved["prompt_tokens_total"], moved["generation_tokens_total"]) == (80, 16)
    assert moved["prefix_cache_queries_total"] == 80 and moved["prefix_cache_hits_total"] >= 32
    assert moved["request_success_total"] == 2 and moved["num_requests_running"] == 0
    for name in HISTOGRAMS[:2] + HISTOGRAMS[3:9]:
        assert moved[f"{name}_count"] >= 2, name
    assert moved["request_queue_time_seconds_count"] == moved["request_prefill_time_seconds_count"] == 2


async def test_what_is_told_is_clean_and_comes_from_every_service(hybrid: Stack) -> None:
    """Nothing that a scraper would refuse; each process says what its traces lost."""
    services = ("gateway", "tokenizer", "scheduler", "prefill_worker", "decode_worker")

    def told() -> dict[str, float]:
        text = httpx.get(hybrid.base_url.removesuffix("/v1") + "/metrics").text
        assert complaints(text, openmetrics=False) == []
        lost = [family for family in parse_text(text) if family.name == "headrace:trace_records_dropped"]
        return {sample.labels["service"]: sample.value for family in lost for sample in family.samples}

    await until(lambda: told() == dict.fromkeys(services, 0), within_s=10, what="an answer of each")


async def test_openmetrics_are_answered_to_those_who_ask(hybrid: Stack) -> None:
    """Strictly parsed; only that format can carry exemplars, which lead from a bucket to a trace."""
    await ask(hybrid, 2)
    answer = httpx.get(hybrid.base_url.removesuffix("/v1") + "/metrics", headers=OPENMETRICS)

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert complaints(answer.text, openmetrics=True) == []
    assert "trace_id" in answer.text
    families = {family.name for family in parse_openmetrics(answer.text)}  # type: ignore[no-untyped-call]
    assert {"vllm:time_to_first_token_seconds", "vllm:kv_cache_usage_perc"} <= families
