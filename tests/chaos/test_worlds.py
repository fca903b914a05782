"""Seeded schedules of faults in virtual time, over the services' real code; test_nemesis.py strikes real processes.

`pytest tests/chaos/test_worlds.py --nemesis-seed N` plays one again. A seed that fails belongs into seeds.py.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from libs.runtime.logs import setup_logs
from tests.chaos import seeds
from tests.chaos.drawn import Schedule
from tests.chaos.seeds import chosen

pytestmark = pytest.mark.chaos
HANGS_S = 10.0  # of computing; a schedule takes a fraction of a second


@pytest.mark.timeout(400)
def test_schedules_in_virtual_time(pytestconfig: pytest.Config) -> None:
    """Whatever dies, freezes, is cut off, lost, doubled or late: answers are whole, and nothing is left in the end."""
    setup_logs("error")
    failed = {}
    for seed in chosen(pytestconfig, seeds.WORLD, "--nemesis-worlds"):
        schedule = Schedule(seed)
        try:
            with _no_longer_than(HANGS_S):
                schedule.run()
        except Exception as error:
            failed[seed] = f"{schedule.moves[-3:]}: {error!r}"[:600]
    assert failed == {}


def test_a_world_repeats_itself() -> None:
    """A schedule in virtual time does the same again, to the last answer: a failure can be looked into."""
    setup_logs("error")
    runs = []
    for _ in range(2):
        world = Schedule(3).run()
        runs.append([(call.request_id, call.outcome, call.answers) for call in world.calls.values()])
    assert runs[0] == runs[1]


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
