"""Beam search over the real model: what a plain generator finds, and through a worker's death."""

import asyncio
from typing import Any

import pytest

from cli.models import cache_root
from libs.contracts.messages import SamplingParams
from libs.engine.gguf_convert import ensure_default_model
from tests.e2e.client import complete, until
from tests.e2e.conftest import Stack, StackFactory
from tests.fakes.oracle import Oracle

pytestmark = [pytest.mark.e2e, pytest.mark.whole]

WIDTH, MAX_TOKENS = 3, 8
LONG_TOKENS = 96
PROMPT = [1, 504, 3575, 282, 4649, 314]
SURE = 1e-3  # scores of two libraries differ by less


@pytest.fixture(params=("hybrid", "disaggregated"))
def running(stack: StackFactory, request: pytest.FixtureRequest) -> Stack:
    return stack(dtype="float32", role=request.param)


async def search(stack: Stack, max_tokens: int) -> list[list[int]]:
    body: dict[str, Any] = {"model": stack.model, "prompt": PROMPT, "max_tokens": max_tokens, "ignore_eos": True}
    more = {"n": WIDTH, "use_beam_search": True, "return_token_ids": True}
    return [choice["token_ids"] for choice in (await complete(stack.base_url, {**body, **more}))["choices"]]


async def test_the_answers_are_those_of_a_plain_generator(running: Stack) -> None:
    """Same hypotheses in the same order, where no two scores are too close to tell."""
    oracle = Oracle(ensure_default_model(cache_root()))
    params = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, beam_width=WIDTH)

    expected, gap = await asyncio.to_thread(oracle.beam_search, PROMPT, params)

    assert gap > SURE
    assert await search(running, MAX_TOKENS) == expected


async def test_a_worker_s_death_changes_no_answer(running: Stack) -> None:
    """Killed in the middle of a search: it goes on from what is committed."""
    expected = await search(running, LONG_TOKENS)
    searching = asyncio.create_task(search(running, LONG_TOKENS))
    await until(lambda: running.status()["running"] >= WIDTH, within_s=20, what="a search of several beams")
    (victim,) = running.processes("decode_worker")
    victim.kill()

    assert await searching == expected
