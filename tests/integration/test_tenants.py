"""Who is served first in a running pipeline: priority, deadline and fair share, each under a load that hides it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from libs.runtime import api_keys
from tests.integration.pipeline import Answer, Pipeline, greedy, pipeline

pytestmark = pytest.mark.integration

TOKENS, CROWD, STEP_S = 6, 6, 0.03


class Crowded:
    """A pipeline that runs one request at a time, two tenants' keys, and what they ask."""

    def __init__(self, running: Pipeline, keys: dict[str, str]) -> None:
        self.running, self.keys = running, keys
        self.ended: list[str] = []

    def ask(self, name: str, tenant: str, **fields: object) -> "asyncio.Task[Answer]":
        return asyncio.create_task(self._ask(name, tenant, fields))

    async def crowd(self, tenant: str) -> "list[asyncio.Task[Answer]]":
        """So many requests that the last would wait for long, all of them in the scheduler's queue."""
        tasks = [self.ask(f"crowd-{number}", tenant) for number in range(CROWD)]
        while (status := await self.running.status()).running + status.waiting < CROWD:
            await asyncio.sleep(STEP_S)
        return tasks

    async def all_served(self, tasks: Sequence["asyncio.Task[Answer]"]) -> None:
        for answer in await asyncio.wait_for(asyncio.gather(*tasks), 30):
            assert (answer.status, answer.finish) == (200, "length"), answer.error

    async def _ask(self, name: str, tenant: str, fields: dict[str, object]) -> Answer:
        first = 100 + 20 * (sum(name.encode()) % 30)  # no two share a prefix
        ids = range(first, first + 20)
        answer = await self.running.ask(ids, TOKENS, key=self.keys[tenant], **fields)
        if answer.status == 200:
            assert answer.ids == greedy(ids, TOKENS)
        self.ended.append(name)
        return answer


@pytest.fixture
async def crowded(tmp_path: Path) -> AsyncIterator[Crowded]:
    path = tmp_path / "keys.json"
    keys = {tenant: api_keys.add(path, tenant, first_priority=-5)[0] for tenant in ("flood", "quiet")}
    settings = {"scheduler": {"max_running": 1}, "gateway": {"keys_path": path}}
    async with pipeline(tmp_path, **settings) as running:
        running.start_worker(step_s=STEP_S)
        await running.ready()
        yield Crowded(running, keys)
        await running.quiet()


async def test_priority_deadline_and_fair_share_are_kept_under_load(crowded: Crowded) -> None:
    """Each comes last into a crowd of its own or another tenant, and is among the first that end.

    Not the very first: one runs, and the next may have been admitted when it comes.
    """
    late = {
        "another-tenant": ("quiet", {}),
        "earlier": ("flood", {"priority": -3}),
        "timed": ("flood", {"timeout": 20}),
        "usual": ("flood", {}),
    }
    places = {}
    for name, (tenant, fields) in late.items():
        crowded.ended.clear()
        tasks = await crowded.crowd("flood")
        await crowded.all_served([*tasks, crowded.ask(name, tenant, **fields)])
        places[name] = crowded.ended.index(name)

    assert places.pop("usual") == CROWD
    assert max(places.values()) <= CROWD // 2, places


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
