"""What the chart renders serves the real model, and loses no request with a whole pod and its pool."""

import asyncio
from pathlib import Path

import httpx
import pytest

from cli.models import DEFAULT_NAME, cache_root, resolve_model
from deploy.index_functions import load_functions
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


async def started(pods: Pods) -> None:
    """Every workload, and every container ready."""
    pods.start("headrace-nats")
    pods.start("headrace-valkey")
    password = (pods.secrets / "index_supervisor").read_text()
    await asyncio.wait_for(load_functions(f"redis://127.0.0.1:{pods.ports['valkey']}", password), 10)
    for name in ("scheduler-c", "standby-c", "workers-c", "tokenizer-default", "gateway"):
        await asyncio.to_thread(pods.start, f"headrace-{name}")
    for pod in pods.pods.values():
        for container in pod.processes:
            if container not in ("nats", "valkey"):
                await asyncio.to_thread(pods.await_health, pod, container)


async def streamed(pods: Pods, model: str, at_token: int = 0) -> str:
    """A whole answer; at a token of it the workers' pod dies with its pool, and another takes its place."""
    text, count = "", 0
    headers = {"Authorization": f"Bearer {(pods.secrets / 'api_key').read_text()}"}
    body = {"model": model, "prompt": "Rivers carry water to", "max_tokens": TOKENS, "temperature": 0.7, "seed": 5}
    url = f"http://127.0.0.1:{pods.ports['gateway']}/v1/completions"
    async with (
        httpx.AsyncClient(timeout=90) as client,
        client.stream("POST", url, json={**body, "ignore_eos": True, "stream": True}, headers=headers) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = httpx.Response(200, content=line.removeprefix("data: ")).json()
            assert "error" not in event, event
            text, count = text + "".join(choice["text"] for choice in event["choices"]), count + 1
            if count == at_token:
                pods.pods["headrace-workers-c"].kill()
                await asyncio.to_thread(pods.start, "headrace-workers-c")
    return text


async def test_a_stream_outlives_the_pod_of_its_workers(tmp_path: Path) -> None:
    """The scheduler that led the lost pool ends, the other one begins with the new pool, and the text is the same."""
    model = resolve_model(DEFAULT_NAME, cache_root(), lambda done, total: None)
    values = {**VALUES, "models": {"default": {"path": model.name}}}
    with running(values, model.parent, tmp_path) as pods:
        await started(pods)
        undisturbed = await streamed(pods, "SmolLM2-135M-Instruct")
        assert await streamed(pods, "SmolLM2-135M-Instruct", KILLED_AT) == undisturbed
        seats = [pods.pods[f"headrace-{seat}-c"].processes["scheduler"] for seat in ("scheduler", "standby")]
        assert sorted(str(process.poll()) for process in seats) == ["1", "None"]
        assert await streamed(pods, "SmolLM2-135M-Instruct") == undisturbed
