"""Streams go on with the same tokens when a process of the pipeline is killed in the middle of them."""

import asyncio
from typing import Any

import pytest

from tests.e2e.client import events
from tests.e2e.conftest import Stack, StackFactory
from tests.golden import GoldenPrompt, golden_prompts

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

STREAMS = 6
KILL_AFTER_TOKENS = 8


async def ids_of(stack: Stack, prompt: GoldenPrompt, seen: "asyncio.Queue[None]") -> list[int]:
    """The streamed ids; each event is one entry in `seen`."""
    body: dict[str, Any] = {"model": stack.model, "prompt": prompt.prompt_ids, "max_tokens": len(prompt.output_ids)}
    ids: list[int] = []
    async for event in events(stack.base_url, {**body, "temperature": 0, "ignore_eos": True, "return_token_ids": True}):
        assert "error" not in event, event
        for choice in event["choices"]:
            ids += choice.get("token_ids") or []
            seen.put_nowait(None)
    return ids


@pytest.mark.parametrize("service", ["decode_worker", "scheduler", "tokenizer"])
async def test_streams_survive_a_killed_process(stack: StackFactory, service: str) -> None:
    """Every stream finishes with the reference library's ids, none doubled or missing, and no block stays held."""
    running = stack(role="hybrid", dtype="float32", decode=2)
    prompts = [prompt for prompt in golden_prompts() if len(prompt.prompt_ids) < 100][:STREAMS]
    seen: asyncio.Queue[None] = asyncio.Queue()
    streams = [asyncio.create_task(ids_of(running, prompt, seen)) for prompt in prompts]
    for _ in range(KILL_AFTER_TOKENS * STREAMS):
        await seen.get()

    running.processes(service)[0].kill()

    assert await asyncio.gather(*streams) == [prompt.output_ids for prompt in prompts]
    while running.status()["blocks"]["held"] or running.status()["blocks"]["freeing"]:
        await asyncio.sleep(0.05)
