"""What else runs at the same time, and where, changes no token."""

import asyncio
from typing import Any

import pytest

from tests.e2e.client import complete, until
from tests.e2e.conftest import Stack, StackFactory
from tests.golden import golden_prompts, sampled_requests

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(480)]

LAYOUTS: dict[str, dict[str, Any]] = {
    "hybrid": {"role": "hybrid"},
    "disaggregated": {"role": "disaggregated"},
    "two of each": {"role": "disaggregated", "prefill": 2, "decode": 2, "tokenizers": 2},
}


def greedy_requests(model: str) -> list[dict[str, Any]]:
    """24 requests of mixed lengths: each golden prompt twice, cut at different tokens."""
    prompts = golden_prompts()
    return [
        {
            "model": model,
            "prompt": prompts[n % len(prompts)].prompt_ids,
            "max_tokens": 12 + (n * 17) % 52,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        for n in range(24)
    ]


async def ids_of(stack: Stack, body: dict[str, Any]) -> list[int]:
    answer = await complete(stack.base_url, body)
    ids: list[int] = answer["choices"][0]["token_ids"]
    return ids


@pytest.mark.parametrize(
    "layout",
    [*(pytest.param(role, marks=pytest.mark.whole) for role in ("hybrid", "disaggregated")), "two of each"],
    ids=lambda name: name.replace(" ", "-"),
)
async def test_24_requests_at_once_get_the_tokens_of_each_alone(stack: StackFactory, layout: str) -> None:
    """Greedy ids equal the reference library's, sampled ids the oracle's; afterwards no block is held."""
    running = stack(dtype="float32", **LAYOUTS[layout])
    greedy = greedy_requests(running.model)
    sampled = sampled_requests()
    asked = greedy + [{**case.body, "model": running.model} for case in sampled]
    prompts = golden_prompts()
    expected = [prompts[n % len(prompts)].output_ids[: body["max_tokens"]] for n, body in enumerate(greedy)]
    expected += [case.output_ids for case in sampled]

    together = await asyncio.gather(*(ids_of(running, body) for body in asked))

    assert together == expected
    await until(lambda: running.status()["blocks"]["freeing"] == 0, within_s=2, what="no block is freeing")
    blocks = running.status()["blocks"]
    assert blocks["held"] == 0
    assert blocks["free"] + blocks["cached"] == blocks["total"]
    if running.options["role"] == "disaggregated":
        assert running.prefilled_elsewhere() == len(asked)


@pytest.mark.whole
async def test_torch_serves_where_native_kernels_cannot(stack: StackFactory) -> None:
    """A few greedy requests at once get the reference library's tokens from the fallback, too."""
    running = stack(dtype="float32", role="hybrid", kernels="torch")
    prompts = golden_prompts()[:4]
    asked = [{**body, "max_tokens": 12} for body in greedy_requests(running.model)[:4]]

    together = await asyncio.gather(*(ids_of(running, body) for body in asked))

    assert together == [prompt.output_ids[:12] for prompt in prompts]
