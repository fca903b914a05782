"""Log-probabilities and penalties of the real model: streamed as whole, alone as beside others, and through deaths."""

import asyncio
import random
from typing import Any

import pytest

from tests.e2e.client import complete, events
from tests.e2e.conftest import Stack, StackFactory

pytestmark = [pytest.mark.e2e, pytest.mark.whole, pytest.mark.timeout(600)]

PROMPT = random.Random(8).sample(range(1000, 40_000), 70)
LONG = random.Random(9).choices(range(1000, 40_000), k=1500)  # several chunks
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
SHAPED = {
    "repetition_penalty": 1.3,
    "frequency_penalty": 0.7,
    "presence_penalty": 0.2,
    "logit_bias": {"260": 3, "30": -100},
    "bad_words": ["the", "and then"],
    "min_tokens": 4,
}


@pytest.fixture(params=("hybrid", "disaggregated"))
def running(stack: StackFactory, request: pytest.FixtureRequest) -> Stack:
    return stack(dtype="float32", role=request.param, decode=2)


def body(stack: Stack, prompt: list[int], **more: Any) -> dict[str, Any]:
    fields = {"model": stack.model, "prompt": prompt, "max_tokens": 40, "temperature": 0.8, "seed": 3}
    return {**fields, "ignore_eos": True, "logprobs": 3, "return_token_ids": True, **more}


async def whole(stack: Stack, prompt: list[int], **more: Any) -> dict[str, Any]:
    (choice,) = (await complete(stack.base_url, body(stack, prompt, **more)))["choices"]
    return {"ids": choice["token_ids"], "text": choice["text"], **choice["logprobs"]}


async def streamed(stack: Stack, prompt: list[int], *, killing: str = "", **more: Any) -> dict[str, Any]:
    """The same, put together from events; a worker of one kind is killed after a few of them."""
    got: dict[str, Any] = {"ids": [], "text": "", **{name: [] for name in LISTS}}
    victims = stack.processes(killing) if killing else []
    async for event in events(stack.base_url, body(stack, prompt, **more)):
        (choice,) = event["choices"]
        got["ids"] += choice["token_ids"]
        got["text"] += choice["text"]
        for name in LISTS:
            got[name] += choice["logprobs"][name]
        if victims and len(got["ids"]) >= 9:
            for victim in victims:
                victim.kill()
            victims = []
    return got


async def test_shaped_answers_and_their_log_probabilities_survive(running: Stack) -> None:
    """Every penalty at once, with the prompt echoed: the same entries whole, streamed beside others, and through a
    death of every decode worker."""
    fields: dict[str, Any] = {**SHAPED, "echo": True}
    expected = await whole(running, PROMPT, **fields)
    assert expected["ids"] != (await whole(running, PROMPT))["ids"]
    assert len(expected["token_logprobs"]) == len(PROMPT) + 40 and expected["token_logprobs"][0] is None

    got = await asyncio.gather(
        streamed(running, PROMPT, killing="decode_worker", **fields),
        streamed(running, PROMPT, **fields),
        streamed(running, PROMPT[::-1]),
        whole(running, PROMPT, **fields),
    )

    assert [got[0], got[1], got[3]] == [expected] * 3


async def test_a_prompt_is_scored_the_same_whatever_happens(running: Stack) -> None:
    """In chunks, after a prefix of it was cached, and with its worker killed while it computes."""
    fields: dict[str, Any] = {"max_tokens": 0, "echo": True, "logprobs": 1}
    expected = await whole(running, LONG, **fields)
    await whole(running, LONG[:700], max_tokens=1)
    scoring = asyncio.create_task(whole(running, LONG, **fields))
    await asyncio.sleep(0.3)
    for victim in running.processes("prefill_worker") + running.processes("decode_worker"):
        victim.kill()

    assert await scoring == expected
    assert len(expected["token_logprobs"]) == len(LONG) and expected["token_logprobs"][0] is None
    assert all(logprob <= 0 for logprob in expected["token_logprobs"][1:])


async def test_a_batch_is_scored_as_an_evaluator_does(running: Stack) -> None:
    """Several prompts of ids, one token and an echo: sums over a continuation, and whether it is the likeliest."""
    prompts = [PROMPT[:20], PROMPT[:33], LONG[:50]]
    fields: dict[str, Any] = {"max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    answer = await complete(running.base_url, body(running, prompts, **fields))  # type: ignore[arg-type]

    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        told = choice["logprobs"]
        assert len(told["token_logprobs"]) == len(prompt) + 1
        assert told == {name: (await whole(running, prompt, **fields))[name] for name in LISTS}
        assert all(token in tops for token, tops in zip(told["tokens"][1:], told["top_logprobs"][1:], strict=True))
