"""Streams on a stack with the fake engine while something is done to it: what the tests of single faults share."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

from libs.contracts.messages import SamplingParams
from tests.chaos.checker import check
from tests.chaos.history import History
from tests.chaos.lane import Lane
from tests.chaos.oracle import FAKE_ORACLE

STREAMS = 8
TOKENS = 150
SEEN_TOKENS = 10  # of each stream before anything is done
RESTS_WITHIN_S = 40.0  # a bound for what never rests
HISTORIES = Path("build/histories")


async def strike(
    lane: Lane, name: str, fault: Callable[[], Awaitable[None]], *, tokens: int = TOKENS, may_fail: bool = False
) -> History:
    """Streams under way, the fault, their ends, and rest; INV is checked. `fault` runs beside the streams."""
    history, rng = History(f"survival/{name}/1", may_fail=may_fail), random.Random(name)
    for number in range(STREAMS):
        prompt = [rng.randrange(10, 1000) for _ in range(rng.randint(3, 60))]
        params = SamplingParams(
            temperature=0.8 * (number % 2), seed=rng.randrange(1 << 30), max_tokens=tokens, ignore_eos=True
        )
        history.invoke(prompt, params, time.monotonic())
    streams = [asyncio.create_task(lane.perform(operation)) for operation in history.operations]
    while not all(len(operation.ids) >= SEEN_TOKENS for operation in history.operations):
        await asyncio.sleep(0.01)
    history.plant(name, time.monotonic())
    await fault()
    await asyncio.gather(*streams, return_exceptions=True)
    await lane.come_to_rest(history, RESTS_WITHIN_S)
    problems = check(history, FAKE_ORACLE)
    assert problems == [], (problems, history.save(HISTORIES))
    return history


def longest_stall_s(history: History) -> float:
    """Between two events of one stream."""
    stalls = [0.0]
    for operation in history.operations:
        times = [part.at_s for part in operation.parts]
        stalls += [after - before for before, after in pairwise(times)]
    return max(stalls)
