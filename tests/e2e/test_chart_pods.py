"""What the chart renders serves the real model, and loses no request with a whole pod and its pool."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.models import DEFAULT_NAME, cache_root, resolve_model
from deploy.index_functions import load_functions
from libs.engine.gguf_convert import DEFAULT_MODEL
from services.tokenizer.loads import KNOWN_S
from tests.e2e.chart_pods import Pods, running

pytestmark = [pytest.mark.e2e, pytest.mark.whole]

VALUES = {
    "gateway": {"drainSeconds": 1, "service": {"grpcPort": 50051}},
    "cellDefaults": {"pool": {"blocks": 512, "memoryMiB": 256}, "drainSeconds": 1},
    "prefillWorker": {"settings": {"threads": 1}},
    "decodeWorker": {"settings": {"threads": 1}},
    "scheduler": {"settings": {"role": "disaggregated"}},
}
TOKENS = 96
KILLED_AT = 12


async def started(pods: Pods, *workloads: str) -> None:
    """Brokers, these pods, a tokenizer and a gateway, every container of them ready."""
    pods.start("headrace-nats")
    pods.start("headrace-valkey")
    password = (pods.secrets / "index_supervisor").read_text()
    await asyncio.wait_for(load_functions(f"redis://127.0.0.1:{pods.ports['valkey']}", password), 10)
    for name in (*workloads, "tokenizer-default-0", "gateway-0"):
        workload, _, index = name.rpartition("-")
        await asyncio.to_thread(pods.start, f"headrace-{workload}", int(index))
    for pod in pods.pods.values():
        for container in pod.processes:
            if container not in ("nats", "valkey"):
                await asyncio.to_thread(pods.await_health, pod, container)


def client_of(pods: Pods) -> httpx.AsyncClient:
    key = (pods.secrets / "api_key").read_text()
    url = f"http://127.0.0.1:{pods.ports['gateway']}"
    return httpx.AsyncClient(base_url=url, timeout=60, headers={"Authorization": f"Bearer {key}"})


async def streamed(pods: Pods, at_token: int = 0) -> str:
    """A whole answer; at a token of it the workers' pod dies with its pool, and another takes its place."""
    text, count = "", 0
    body = {
        "model": DEFAULT_MODEL,
        "prompt": "Rivers carry water to",
        "max_tokens": TOKENS,
        "temperature": 0.7,
        "seed": 5,
    }
    async with (
        client_of(pods) as client,
        client.stream("POST", "/v1/completions", json={**body, "ignore_eos": True, "stream": True}) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = httpx.Response(200, content=line.removeprefix("data: ")).json()
            assert "error" not in event, event
            text, count = text + "".join(choice["text"] for choice in event["choices"]), count + 1
            if count == at_token:
                pods.pods["headrace-workers-c-0"].kill()
                await asyncio.to_thread(pods.start, "headrace-workers-c")
    return text


def models() -> Path:
    """The default model's folder."""
    return resolve_model(DEFAULT_NAME, cache_root(), lambda done, total: None)


async def test_a_stream_outlives_the_pod_of_its_workers(tmp_path: Path) -> None:
    """The scheduler that led the lost pool ends, the other one begins with the new pool, and the text is the same."""
    model = models()
    values = {**VALUES, "models": {"default": {"path": model.name}}}
    with running(values, model.parent, tmp_path) as pods:
        await started(pods, "scheduler-c-0", "standby-c-0", "workers-c-0")
        undisturbed = await streamed(pods)
        assert await streamed(pods, KILLED_AT) == undisturbed
        seats = [pods.pods[f"headrace-{seat}-c-0"].processes["scheduler"] for seat in ("scheduler", "standby")]
        assert sorted(str(process.poll()) for process in seats) == ["1", "None"]
        assert await streamed(pods) == undisturbed


async def answered(client: httpx.AsyncClient, prompts: Sequence[str]) -> None:
    """All at once; each gets its whole answer."""
    bodies = [{"model": DEFAULT_MODEL, "prompt": prompt, "max_tokens": 24, "ignore_eos": True} for prompt in prompts]
    for answer in await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies)):
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 24


async def steps(client: httpx.AsyncClient) -> dict[str, float]:
    """Steps so far, by cell, of those whose scheduler tells."""
    families = text_string_to_metric_families((await client.get("/metrics")).text)
    samples = [sample for family in families for sample in family.samples]
    return {each.labels["engine"]: each.value for each in samples if each.name == "headrace:step_seconds_count"}


async def test_two_cells_share_the_work_and_one_does_it_alone(tmp_path: Path) -> None:
    """Prompts that nobody knows go to either; a cell that is lost gets none."""
    model = models()
    hybrid = {"prefill": 0, "pool": {"blocks": 256, "memoryMiB": 128}, "drainSeconds": 1}
    values = {
        **VALUES,
        "models": {"default": {"path": model.name}},
        "cells": {"c": {"count": 2}},
        "cellDefaults": hybrid,
        "scheduler": {"standby": False, "settings": {"role": "hybrid"}},
    }
    with running(values, model.parent, tmp_path) as pods:
        await started(pods, "scheduler-c-0", "scheduler-c-1", "workers-c-0", "workers-c-1")
        async with client_of(pods) as client:
            await answered(client, [f"{word} rivers carry water to" for word in ("Many", "Some", "No", "Old", "All")])
            both = await steps(client)
            assert min(both.get("c0", 0), both.get("c1", 0)) > 20, both
            pods.pods["headrace-scheduler-c-1"].kill()
            pods.pods["headrace-workers-c-1"].kill()
            await asyncio.sleep(KNOWN_S)  # for so long a cell may be gone by that is no more
            await answered(client, [f"{word} lakes carry water to" for word in ("Many", "Some", "No", "Old", "All")])
            assert (await steps(client)).keys() == {"c0"}
