"""Every failpoint × {kill, pause} on stacks with the fake engine: INV holds. A new one is tested by being listed."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.chaos.checker import check
from tests.chaos.history import History
from tests.chaos.lane import Lane
from tests.chaos.matrix import LANES, Case, cases, run_case
from tests.chaos.oracle import FAKE_ORACLE

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

HISTORIES = Path("build/histories")
CASES = {case.name: case for case in cases()}
Verdicts = dict[str, "Future[History]"]


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verdicts]:
    """All chosen cases, run side by side on one stack per role while the tests wait for theirs."""
    chosen = [_parameters(item).get("name") for item in request.session.items]
    futures: Verdicts = {name: Future() for name in CASES if name in chosen}
    folder = tmp_path_factory.mktemp("matrix")
    runner = threading.Thread(target=lambda: asyncio.run(_run_lanes(folder, futures)), name="matrix")
    runner.start()
    yield futures
    runner.join()


@pytest.mark.parametrize("name", CASES)
def test_inv_holds(verdicts: Verdicts, name: str) -> None:
    """Whatever dies or freezes there: every stream is whole, nothing leaks, nothing is left."""
    history = verdicts[name].result()

    problems = [] if CASES[name].ends_the_stack else check(history, FAKE_ORACLE)
    assert problems == [], f"see {HISTORIES} for its history and logs"


def _parameters(item: pytest.Item) -> dict[str, object]:
    parameters: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return parameters


async def _run_lanes(folder: Path, futures: Verdicts) -> None:
    await asyncio.gather(*(_run_lane(folder, name, futures) for name in LANES))


async def _run_lane(folder: Path, lane_name: str, futures: Verdicts) -> None:
    """The cases of one lane; a stack that ended, or is not at rest any more, is replaced by a new one."""
    waiting = [CASES[name] for name in futures if CASES[name].lane == lane_name]
    role, options = LANES[lane_name]
    (folder / lane_name).mkdir()
    while waiting:
        try:
            async with Lane(folder / lane_name, role, options).opened() as lane:
                while waiting and await _run_one(lane, waiting.pop(0), futures):
                    pass
        except Exception as error:
            for case in waiting:
                futures[case.name].set_exception(error)
            raise


async def _run_one(lane: Lane, case: Case, futures: Verdicts) -> bool:
    """Whether the lane can be used again."""
    try:
        history = await run_case(lane, case)
    except Exception as error:
        futures[case.name].set_exception(error)
        return False
    is_sound = case.ends_the_stack or not check(history, FAKE_ORACLE)
    if not is_sound:
        lane.keep_logs(history.save(HISTORIES).with_suffix(".logs"))
    futures[case.name].set_result(history)
    return is_sound and not case.ends_the_stack
