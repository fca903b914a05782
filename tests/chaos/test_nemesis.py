"""Seeded schedules of faults: most in virtual time over the services' real code, some on real processes.

`pytest tests/chaos/test_nemesis.py --nemesis-seed N` plays one again. A seed that fails belongs into seeds.py.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from libs.runtime.logs import setup_logs
from tests.chaos import seeds
from tests.chaos.checker import check
from tests.chaos.drawn import Schedule
from tests.chaos.lane import Lane
from tests.chaos.matrix import ROLES
from tests.chaos.nemesis import draw, run_schedule
from tests.chaos.oracle import FAKE_ORACLE

pytestmark = pytest.mark.chaos
HISTORIES = Path("build/histories")
HANGS_S = 10.0  # of computing; a schedule takes a fraction of a second


@pytest.mark.timeout(400)
def test_schedules_in_virtual_time(pytestconfig: pytest.Config) -> None:
    """Whatever dies, freezes, is cut off, lost, doubled or late: answers are whole, and nothing is left in the end."""
    setup_logs("error")
    failed = {}
    for seed in _chosen(pytestconfig, seeds.WORLD, pytestconfig.getoption("--nemesis-worlds")):
        schedule = Schedule(seed)
        try:
            with _no_longer_than(HANGS_S):
                schedule.run()
        except Exception as error:
            failed[seed] = f"{schedule.moves[-3:]}: {error!r}"[:600]
    assert failed == {}


@pytest.mark.timeout(400)
async def test_schedules_on_real_processes(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """INV after each; a stack is used again and again as long as it holds."""
    chosen = _chosen(pytestconfig, seeds.STACK, pytestconfig.getoption("--nemesis-stacks"))
    failed: dict[int, list[str]] = {}
    await asyncio.gather(
        *(_run_lane(tmp_path / role, role, chosen[turn::2], failed) for turn, role in enumerate(ROLES))
    )
    assert failed == {}


def test_a_seed_is_a_schedule() -> None:
    """The same faults at the same times whenever it is drawn, and others for another seed."""
    assert draw(7) == draw(7)
    assert len({tuple(map(str, draw(seed))) for seed in range(50)}) > 40


def test_a_world_repeats_itself() -> None:
    """A schedule in virtual time does the same again, to the last answer: a failure can be looked into."""
    setup_logs("error")
    runs = []
    for _ in range(2):
        world = Schedule(3).run()
        runs.append([(call.request_id, call.outcome, call.answers) for call in world.calls.values()])
    assert runs[0] == runs[1]


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


def _chosen(config: pytest.Config, kept: tuple[int, ...], count: int) -> list[int]:
    one = config.getoption("--nemesis-seed")
    return [one] if one is not None else list(dict.fromkeys((*kept, *range(count))))


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    """Counts what this process computes, so that a busy machine makes no schedule fail."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it hangs: it computes for {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
