"""Who is served first in a running pipeline: priority, deadline and fair share, each under a load that hides it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from libs.runtime import api_keys
from tests.integration.pipeline import SOON_S, Answer, Pipeline, greedy, pipeline

pytestmark = pytest.mark.integration

STEP_S, TOKENS, PLUG_TOKENS, CROWD = 0.03, 4, 100, 6


class Crowded:
    """A pipeline that runs one request at a time, two tenants' keys, and what they ask."""

    def __init__(self, running: Pipeline, keys: dict[str, str]) -> None:
        self.running, self.keys = running, keys
        self.ended: list[str] = []

    def ask(self, name: str, tenant: str, tokens: int = TOKENS, **fields: Any) -> "asyncio.Task[Answer]":
        return asyncio.create_task(self._ask(name, tenant, tokens, fields))

    async def until_waiting(self, requests: int) -> None:
        """So many are in the scheduler's queue, and one runs."""
        async with asyncio.timeout(SOON_S):
            while (status := await self.running.status()).waiting < requests or not status.running:
                await asyncio.sleep(STEP_S)

    async def crowd(self, tenant: str) -> "list[asyncio.Task[Answer]]":
        """One that runs for long, and behind it so many that are short."""
        tasks = [self.ask("plug", tenant, PLUG_TOKENS)]
        await self.until_waiting(0)
        tasks += [self.ask(f"crowd-{number}", tenant) for number in range(CROWD)]
        await self.until_waiting(CROWD)
        return tasks

    async def all_served(self, tasks: Sequence["asyncio.Task[Answer]"]) -> None:
        for answer in await asyncio.wait_for(asyncio.gather(*tasks), SOON_S):
            assert (answer.status, answer.finish) == (200, "length"), answer.error

    async def _ask(self, name: str, tenant: str, tokens: int, fields: dict[str, Any]) -> Answer:
        first = 100 + 20 * (sum(name.encode()) % 30)  # no two share a prefix
        ids = range(first, first + 20)
        answer = await self.running.ask(ids, tokens, key=self.keys[tenant], **fields)
        if answer.status == 200:
            assert answer.ids == greedy(ids, tokens)
        self.ended.append(name)
        return answer


@pytest.fixture
async def crowded(tmp_path: Path) -> AsyncIterator[Crowded]:
    path = tmp_path / "keys.json"
    keys = {tenant: api_keys.add(path, tenant, first_priority=-5)[0] for tenant in ("flood", "quiet")}
    async with pipeline(tmp_path, scheduler={"max_running": 1}, gateway={"keys_path": path}) as running:
        running.start_worker(step_s=STEP_S)
        await running.ready()
        yield Crowded(running, keys)
        await running.quiet()


async def test_priority_deadline_and_fair_share_are_kept_under_load(crowded: Crowded) -> None:
    """Who comes after a crowd ends before it: of an earlier class, with a timeout, or of another tenant."""
    tasks = await crowded.crowd("flood")
    tasks.append(crowded.ask("usual", "flood"))
    await crowded.until_waiting(CROWD + 1)
    tasks.append(crowded.ask("another-tenant", "quiet"))
    tasks.append(crowded.ask("timed", "flood", timeout=60))
    tasks.append(crowded.ask("earlier", "flood", priority=-3))
    await crowded.until_waiting(CROWD + 4)
    assert not crowded.ended
    await crowded.all_served(tasks)

    first, *short = crowded.ended
    assert first == "plug"
    assert {"another-tenant", "timed", "earlier"} <= set(short[: CROWD // 2 + 2]), short
    assert "usual" in short[-2:], short


async def test_what_cannot_be_kept_is_refused_and_what_is_not_kept_is_ended(crowded: Crowded) -> None:
    """429 with a time to come back in the one case, 504 in the other, and nothing is left of either."""
    tasks = await crowded.crowd("flood")
    for timeout_s in (0.05, 0.3):
        answer = await crowded.ask("late", "flood", timeout=timeout_s, priority=5)
        assert answer.status in (429, 504), answer
        assert answer.error["code"] == ("deadline_exceeded" if answer.status == 504 else answer.error["code"])
        assert ("retry-after" in answer.headers) == (answer.status == 429)
    await crowded.all_served(tasks)
    refused = await crowded.running.ask([1, 2], 2, key="sk-hr-of-nobody")
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
