"""Several choices of one request from the real model: one prefill, each the same as alone, and through a death."""

import asyncio
import random
from typing import Any

import pytest

from tests.e2e.client import complete, events
from tests.e2e.conftest import Stack, StackFactory
from tests.e2e.test_metrics import scrape

pytestmark = pytest.mark.e2e

CHOICES, MAX_TOKENS, SEED = 4, 24, (1 << 64) - 2
PROMPT = random.Random(6).sample(range(1000, 40_000), 50)  # ends inside a block


@pytest.fixture(params=(pytest.param("hybrid", marks=pytest.mark.whole), "disaggregated"))
def running(stack: StackFactory, request: pytest.FixtureRequest) -> Stack:
    return stack(dtype="float32", role=request.param)


def body(stack: Stack, prompt: list[int], seed: int, **more: Any) -> dict[str, Any]:
    fields = {"model": stack.model, "prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0.9, "top_p": 0.95}
    return {**fields, "seed": seed, "return_token_ids": True, **more}


async def alone(stack: Stack, prompt: list[int]) -> list[list[int]]:
    """What each choice is as a request of its own."""
    seeds = [(SEED + index) % (1 << 64) for index in range(CHOICES)]
    answers = await asyncio.gather(*(complete(stack.base_url, body(stack, prompt, seed)) for seed in seeds))
    return [answer["choices"][0]["token_ids"] for answer in answers]


async def test_one_prefill_serves_choices_that_are_each_the_same_as_alone(running: Stack) -> None:
    """The steps have the prompt's tokens once; usage counts them once, and every choice's."""
    before = scrape(running)
    answer = await complete(running.base_url, body(running, PROMPT, SEED, n=CHOICES))
    moved = {name: value - before.get(name, 0.0) for name, value in scrape(running).items()}

    ids = [choice["token_ids"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == list(range(CHOICES))
    assert ids == await alone(running, PROMPT)
    generated = sum(map(len, ids))
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (len(PROMPT), generated)
    assert moved["iteration_tokens_total_sum"] == len(PROMPT) + generated - CHOICES  # last tokens are not written
    assert moved["prefix_cache_hits_total"] == 0


async def test_a_worker_s_death_changes_no_choice(running: Stack) -> None:
    """Killed while all of them decode: every choice goes on elsewhere, with the tokens that it has alone."""
    prompt = PROMPT[::-1]
    expected = await alone(running, prompt)
    got: list[list[int]] = [[] for _ in range(CHOICES)]
    victims = running.processes("decode_worker")
    async for event in events(running.base_url, body(running, prompt, SEED, n=CHOICES)):
        for choice in event["choices"]:
            got[choice["index"]] += choice["token_ids"]
        if victims and min(map(len, got)) >= 3:
            victims.pop().kill()

    assert not victims and got == expected
