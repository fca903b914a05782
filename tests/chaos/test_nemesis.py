"""Seeded schedules of faults on real processes; test_worlds.py has those in virtual time.

`pytest tests/chaos/test_nemesis.py --nemesis-seed N` plays one again. A seed that fails belongs into seeds.py.
"""

import asyncio
from pathlib import Path

import pytest

from tests.chaos import seeds
from tests.chaos.checker import check
from tests.chaos.lane import Lane
from tests.chaos.matrix import ROLES
from tests.chaos.nemesis import draw, run_schedule
from tests.chaos.oracle import FAKE_ORACLE
from tests.chaos.seeds import chosen

pytestmark = pytest.mark.chaos
HISTORIES = Path("build/histories")


@pytest.mark.timeout(400)
async def test_schedules_on_real_processes(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """INV after each; a stack is used again and again as long as it holds."""
    waiting = chosen(pytestconfig, seeds.STACK, "--nemesis-stacks")
    failed: dict[int, list[str]] = {}
    await asyncio.gather(
        *(_run_lane(tmp_path / role, role, waiting[turn::2], failed) for turn, role in enumerate(ROLES))
    )
    assert failed == {}


def test_a_seed_is_a_schedule() -> None:
    """The same faults at the same times whenever it is drawn, and others for another seed."""
    assert draw(7) == draw(7)
    assert len({tuple(map(str, draw(seed))) for seed in range(50)}) > 40


async def _run_lane(folder: Path, role: str, waiting: list[int], failed: dict[int, list[str]]) -> None:
    folder.mkdir()
    while waiting:
        async with Lane(folder, role).opened() as lane:
            while waiting:
                history = await run_schedule(lane, seed := waiting.pop(0))
                if problems := check(history, FAKE_ORACLE):
                    logs = lane.keep_logs(history.save(HISTORIES).with_suffix(".logs"))
                    failed[seed] = [*map(str, draw(seed)), *problems, str(logs)]
                    break
