"""Which process runs which test, played with processes that behave as pytest-xdist's do."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.side_by_side import COMPUTER, SideBySide

WAITS = ("tests/chaos/test_a.py", "tests/integration/test_b.py", "tests/integration/test_c.py")
COMPUTED = ("tests/kernels/test_d.py", "tests/unit/test_e.py")
LAST = ("tests/e2e/test_f.py", "tests/e2e/test_g.py")
TESTS = [f"{file}::test_{number}" for file in (*WAITS, *LAST, *COMPUTED) for number in range(4)]

Ran = list[tuple[str, str]]  # process, test


class Silent:
    """A log that nobody reads."""

    loadscopesched = staticmethod(lambda *_: None)


class Process:
    """Runs the last test that it knows of only when it is told that no more will come."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.todo: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.todo += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def can_run(self) -> bool:
        return len(self.todo) > (0 if self.shutting_down else 1)


def scheduler(processes: int, tests: Sequence[str] = TESTS) -> tuple[SideBySide, list[Process]]:
    """A scheduler whose processes have all collected `tests`."""
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: [f"{processes}*popen"])
    scheduling, made = SideBySide(config, Silent()), [Process(f"gw{number}") for number in range(processes)]
    for process in made:
        join(scheduling, process, tests)
    return scheduling, made


def join(scheduling: SideBySide, process: Any, tests: Sequence[str] = TESTS) -> None:
    scheduling.add_node(process)
    scheduling.add_node_collection(process, list(tests))
    if scheduling.collection_is_completed:
        scheduling.schedule()


def play(scheduling: SideBySide, live: list[Process], crashes: Callable[[str, str], bool] = lambda *_: False) -> Ran:
    """Each process in turn runs a test, until all have ended; one that crashes is replaced."""
    ran: Ran = []
    while live:
        assert any(process.can_run or not process.todo for process in live), "nobody goes on"
        for process in list(live):
            if process.shutting_down and not process.todo:
                live.remove(process)
                if process in scheduling.nodes:
                    assert scheduling.remove_node(process) is None
            elif process.can_run:
                index = process.todo.pop(0)
                ran.append((process.gateway.id, TESTS[index]))
                if crashes(*ran[-1]):
                    live.remove(process)
                    assert scheduling.remove_node(process) == TESTS[index]
                    live.append(Process(f"gw{len(ran) + 10}"))
                    join(scheduling, live[-1])
                else:
                    scheduling.mark_test_complete(process, index)
    return ran


@pytest.mark.parametrize("processes", [1, 2, 3, 5, 9])
def test_every_test_runs_once_and_a_file_in_one_process(processes: int) -> None:
    """However many there are, more than there is work included."""
    ran = play(*scheduler(processes))

    assert sorted(test for _, test in ran) == sorted(TESTS)
    for file in (*WAITS, *COMPUTED):
        assert len({process for process, test in ran if test.startswith(file)}) == 1


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_what_runs_alone_comes_last_in_one_process_of_usual_priority(processes: int) -> None:
    """Nothing else runs any more when its first test begins."""
    ran = play(*scheduler(processes))

    last = [process for process, test in ran if test.startswith(LAST)]
    assert [test for _, test in ran][-len(last) :] == [test for test in TESTS if test.startswith(LAST)]
    assert len(set(last)) == 1 and last[0] != COMPUTER


def test_the_first_process_computes_and_never_waits() -> None:
    """It has a low priority, and stacks need theirs; others may compute when nothing is left to wait for."""
    ran = play(*scheduler(3))

    assert all(test.startswith(COMPUTED) for process, test in ran if process == COMPUTER)
    assert any(process == COMPUTER for process, _ in ran)


@pytest.mark.parametrize("fatal", [TESTS[0], TESTS[9], TESTS[14], TESTS[-1]])
def test_what_crashes_its_process_runs_once_and_the_rest_is_run(fatal: str) -> None:
    """By the process that takes its place, or by another."""
    ran = play(*scheduler(3), crashes=lambda process, test: test == fatal)

    assert sorted(test for _, test in ran) == sorted(TESTS)


@pytest.mark.parametrize("file", [WAITS[0], COMPUTED[0], LAST[0]])
def test_a_single_file_is_run_at_usual_priority(file: str) -> None:
    """The process that only computes is the first that there is no work for."""
    tests = [test for test in TESTS if test.startswith(file)]
    _, made = scheduler(3, tests)

    assert sorted(len(process.todo) for process in made if process.gateway.id != COMPUTER) == [0, len(tests)]
