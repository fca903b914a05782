"""Every request's time is explained: real runs under load, read back from the rings that their processes wrote."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest

from cli.trace import read_store, show_explanation, show_trace
from cli.waterfall import waterfall
from libs.contracts import conventions
from libs.timeline.explain import explain
from libs.timeline.leaves import Leaf, leaves_of
from libs.timeline.shapes import coverage
from libs.timeline.trace import Store
from services.scheduler.reasons import WAITS
from tests.e2e.client import complete, events, until
from tests.e2e.conftest import Stack, StackFactory

pytestmark = [pytest.mark.e2e, pytest.mark.whole]

REQUESTS = 25  # of each role
AT_ONCE = 8
NAMES = {value for name, value in vars(conventions).items() if name.isupper() and isinstance(value, str)}
WAIT_NAMES = {f"wait.{reason}" for reason in (*WAITS, "out_of_grant", "fill_behind", "grammar_behind")}


def bodies(model: str) -> list[dict[str, Any]]:
    """Short and long prompts, some that share a beginning; streams and whole answers."""
    rng = random.Random(7)
    shared = [rng.randrange(100, 40_000) for _ in range(96)]
    drawn = []
    for index in range(REQUESTS):
        own = [rng.randrange(100, 40_000) for _ in range(rng.choice((5, 40, 120, 400)))]
        body = {"model": model, "prompt": (shared if index % 4 == 0 else []) + own, "temperature": 0}
        drawn.append({**body, "max_tokens": rng.randint(2, 24), "ignore_eos": True, "stream": index % 2 == 0})
    return drawn


async def run(running: Stack) -> list[str]:
    """Request ids, all answered."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(body: dict[str, Any]) -> str:
        async with room:
            if body["stream"]:
                return str([event["id"] async for event in events(running.base_url, body)][-1])
            return str((await complete(running.base_url, body))["id"])

    return await asyncio.gather(*(one(body) for body in bodies(running.model)))


def has_shared_boundaries(leaves: tuple[Leaf, ...]) -> bool:
    return all(one.end_ns <= other.start_ns for one, other in pairwise(leaves))


@pytest.mark.parametrize("role", ["hybrid", "disaggregated"])
async def test_the_time_of_every_request_under_load_is_explained(stack: StackFactory, role: str) -> None:
    """98 % of the time to the first token and of all time lies in leaves, 95 % of decoding in steps and waits."""
    running = stack(role=role)
    request_ids = await run(running)

    def store() -> Store:
        return read_store(running.run_dir)

    def all_written() -> bool:
        return set(request_ids) <= {served.request_id for served in store().served}

    await until(all_written, within_s=10, what="records of all requests")
    await asyncio.sleep(1)  # records of the other processes are under way for a quarter of a second
    kept = store()
    for request_id in request_ids:
        trace = kept.find(request_id)
        assert trace is not None
        leaves, shares = leaves_of(kept, trace), coverage(kept, trace)
        assert shares["time_to_first_token"] >= 0.98, waterfall(kept, trace)
        assert shares["end_to_end"] >= 0.98, waterfall(kept, trace)
        assert shares["decode"] >= 0.95, waterfall(kept, trace)
        assert {leaf.name for leaf in leaves} <= NAMES | WAIT_NAMES
        assert has_shared_boundaries(leaves)
        assert all(request_id in step.request_ids for step in trace.steps)
        assert any("Decoded in" in line for line in explain(kept, trace)) or len(trace.steps) < 3
    assert show_trace(request_ids[0], running.run_dir.path, as_json=False, perfetto_path=None)
    assert show_explanation(request_ids[0], running.run_dir.path)
    running.stop()
