"""Options of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nemesis")
    group.addoption("--nemesis-seed", type=int, default=None, help="run this one schedule of faults, nothing drawn")
    group.addoption("--nemesis-worlds", type=int, default=500, help="schedules in virtual time")
    group.addoption("--nemesis-stacks", type=int, default=16, help="schedules on real processes")
