"""A quarter of the KV memory that is needed: all finish, with the tokens of each alone, whatever gives way how."""

import asyncio
from typing import Any

import pytest

from tests.e2e.client import complete, until
from tests.e2e.conftest import Stack, StackFactory
from tests.e2e.test_metrics import scrape
from tests.golden import golden_prompts

pytestmark = [pytest.mark.e2e, pytest.mark.whole, pytest.mark.timeout(240)]

REQUESTS, NEW_TOKENS, BLOCK_TOKENS = 32, 48, 16
SHORT = [prompt for prompt in golden_prompts() if 4 < len(prompt.prompt_ids) < 24]  # they grow most
ASKED = [SHORT[number % len(SHORT)] for number in range(REQUESTS)]
NEED_BLOCKS = sum(-(-(len(prompt.prompt_ids) + NEW_TOKENS) // BLOCK_TOKENS) for prompt in ASKED)
POOL_BLOCKS = NEED_BLOCKS // 4


async def ids_of(stack: Stack, prompt_ids: list[int]) -> list[int]:
    body: dict[str, Any] = {"model": stack.model, "prompt": prompt_ids, "max_tokens": NEW_TOKENS, "temperature": 0}
    answer = await complete(stack.base_url, {**body, "ignore_eos": True, "return_token_ids": True})
    ids: list[int] = answer["choices"][0]["token_ids"]
    return ids


@pytest.mark.parametrize("preemption", ["swap", "recompute", "cost"])
async def test_everybody_finishes_with_the_undisturbed_ids(stack: StackFactory, preemption: str) -> None:
    """Greedy ids of the reference library; the way asked for is taken, and no block of pool or tier is left."""
    running = stack(
        dtype="float32",
        role="hybrid",
        prefill=0,
        kv_blocks=POOL_BLOCKS,
        host_blocks=NEED_BLOCKS,
        settings=(f"scheduler.preemption={preemption}",),
    )

    together = await asyncio.gather(*(ids_of(running, prompt.prompt_ids) for prompt in ASKED))

    assert together == [prompt.output_ids[:NEW_TOKENS] for prompt in ASKED]
    counts = scrape(running, "way", "event")
    swapped, computed = counts["headrace_preemptions_total swap"], counts["headrace_preemptions_total recompute"]
    waited = counts.get("headrace:scheduler_events_total preemption_waits", 0)
    assert swapped + computed == counts["num_preemptions_total"]
    taken = {"swap": swapped > 0, "recompute": computed > 0 == swapped, "cost": swapped + computed + waited > 0}
    assert taken[preemption], counts
    await until(lambda: running.status()["blocks"]["freeing"] == 0, within_s=2, what="no block is freeing")
    blocks = running.status()["blocks"]
    assert (blocks["held"], blocks["free"] + blocks["cached"]) == (0, POOL_BLOCKS)
    assert scrape(running)["headrace:host_blocks_used"] == 0
