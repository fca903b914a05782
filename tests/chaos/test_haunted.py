"""A worker that thaws although it was given up: nobody hears it, and it writes nowhere where somebody else may read."""

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from libs.contracts.messages import SamplingParams
from tests.chaos.checker import check
from tests.chaos.history import History
from tests.chaos.lane import Lane
from tests.chaos.oracle import FAKE_ORACLE

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

STREAMS, TOKENS = 6, 150
SIDE_BY_SIDE_S = 0.6
RESTS_WITHIN_S = 30.0


async def test_a_thawed_worker_touches_nothing(tmp_path: Path) -> None:
    """Its host agent stands still, so that Kill does not reach it: it thaws beside the worker that took its work over.

    Every slot that a row stands on is checked by the engine, so one write into a block of somebody else is found.
    """
    (tmp_path / "lane").mkdir()
    async with Lane(tmp_path / "lane", "hybrid").opened() as lane:
        history = History("haunted")
        rng = Random(1)
        params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
        prompts = [[rng.randrange(10, 1000) for _ in range(20)] for _ in range(STREAMS)]
        operations = [history.invoke(prompt, params, time.monotonic()) for prompt in prompts]
        streams = [asyncio.create_task(lane.perform(operation)) for operation in operations]
        await _until(lambda: all(len(operation.ids) > 5 for operation in operations))
        (frozen, *_), (supervisor,) = lane.pids("decode_worker"), lane.pids("supervisor")
        lane.signal(supervisor, signal.SIGSTOP)
        lane.signal(frozen, signal.SIGSTOP)
        history.plant("freeze decode_worker, Kill held back", time.monotonic())
        try:
            struck = [len(operation.ids) for operation in operations]
            await _until(
                lambda: all(
                    len(operation.ids) > count + 5 or operation.endings
                    for operation, count in zip(operations, struck, strict=True)
                )
            )
            lane.signal(frozen, signal.SIGCONT)
            await asyncio.sleep(SIDE_BY_SIDE_S)
        finally:
            lane.signal(supervisor, signal.SIGCONT)
        await asyncio.gather(*streams)
        await lane.come_to_rest(history, RESTS_WITHIN_S)
        killed = frozen not in lane.pids("decode_worker")
    assert check(history, FAKE_ORACLE) == []
    assert killed, "a worker that was given up is ended"


async def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.01)
