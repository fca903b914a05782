"""Options of the whole suite, what a run without --whole leaves to `make nightly`, and which process runs what."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.native.levels import LEVELS, supported_levels
from tests.side_by_side import NICENESS, SideBySide, is_computer

MOST_PROCESSES = 8
SECOND_LEVEL = "avx2"  # beside the best: the one that shares least with it and still is quick


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nemesis")
    group.addoption("--nemesis-seed", type=int, default=None, help="run this one schedule of faults, nothing drawn")
    group.addoption("--nemesis-worlds", type=int, default=500, help="schedules in virtual time")
    group.addoption("--nemesis-stacks", type=int, default=8, help="schedules on real processes")
    parser.addoption("--whole", action="store_true", help="every level, every fault at every failpoint, long runs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --whole or -k: two instruction levels, each failpoint killed or frozen in turn, links cut both ways."""
    if config.getoption("--whole") or config.getoption("keyword"):
        return
    left_out = [item for item in items if any(rule(item) for rule in LEFT_OUT)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = len(left_out)


def pytest_configure(config: pytest.Config) -> None:
    of_many = getattr(config, "workerinput", None)
    if of_many and is_computer(of_many["workerid"], of_many["workercount"]):
        os.nice(NICENESS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: most tests wait."""
    return min(1 + len(os.sched_getaffinity(0)), MOST_PROCESSES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SideBySide:
    config.option.loadscopereorder = False
    return SideBySide(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What one process of many left out is what all did: the summary counts it once."""
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    if node.gateway.id == "gw0":
        node.config.hook.pytest_deselected(items=[SimpleNamespace()] * left_out)  # only counted


def _at_another_level(item: pytest.Item) -> bool:
    return bool(_values(item) & (set(LEVELS) - {supported_levels()[0], SECOND_LEVEL}))


def _struck_otherwise(item: pytest.Item) -> bool:
    """Half of the matrix: which half a failpoint gets depends on its name alone."""
    for value in _values(item):
        point, _, fault = value.partition("=")
        if item.path.name == "test_matrix.py" and fault in ("kill", "pause"):
            return (fault == "kill") == (sum(point.encode()) % 2 == 0)
    return False


def _cut_one_way(item: pytest.Item) -> bool:
    return item.path.name == "test_partitions.py" and bool(_values(item) & {"up", "down"})


def _long(item: pytest.Item) -> bool:
    return item.get_closest_marker("whole") is not None


def _values(item: pytest.Item) -> set[str]:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return {value for value in parameters.values() if isinstance(value, str)}


LEFT_OUT = (_at_another_level, _struck_otherwise, _cut_one_way, _long)
