"""Several streams of a pipeline at once, and what must be true of them whatever happened meanwhile."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from tests.integration.pipeline import SOON_S, Answer, Pipeline, greedy

STREAMS, TOKENS = 8, 150
PROMPTS = [range(10 + index, 60 + 3 * index) for index in range(STREAMS)]


def begin(pipeline: Pipeline, seen: Sequence[Answer], tokens: int = TOKENS) -> list["asyncio.Task[Answer]"]:
    asked = zip(PROMPTS, seen, strict=False)
    return [asyncio.create_task(pipeline.ask(ids, tokens, seen=answer)) for ids, answer in asked]


async def until_begun(seen: Sequence[Answer], tokens: int = 20) -> None:
    async with asyncio.timeout(SOON_S):
        while min(len(answer.ids) for answer in seen) < tokens:
            await asyncio.sleep(0.01)


async def assert_all_same(streams: Sequence["asyncio.Task[Answer]"], tokens: int = TOKENS) -> None:
    async with asyncio.timeout(2 * SOON_S):
        for ids, answer in zip(PROMPTS, await asyncio.gather(*streams), strict=False):
            outcome = (answer.status, answer.error, answer.broken, answer.finish)
            assert outcome == (200, {}, False, "length"), outcome
            assert answer.ids == greedy(ids, tokens)


def stall_s(answers: Sequence[Answer]) -> float:
    """The longest time without a token."""
    return max(after - before for answer in answers for before, after in pairwise(answer.heard_s))
