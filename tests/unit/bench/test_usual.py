"""A run begins when the machine is as it usually is."""

import pytest

from bench import usual
from bench.limits import Machine
from bench.usual import LEAST_SEEN, SEEN, TRIES, TRIES_AFTER, UsualMachine

SLOW, FAST = Machine(30e9, 400e9), Machine(50e9, 400e9)


class Probes:
    """Gives these one after the other, then the last one for ever."""

    def __init__(self, *machines: Machine) -> None:
        self._left, self.taken = list(machines), 0

    def __call__(self) -> Machine:
        self.taken += 1
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual, "PAUSE_S", 0.0)


async def test_the_first_run_waits_until_it_is_known_what_is_usual() -> None:
    """One probe alone may be the odd one."""
    probes = Probes(SLOW)

    assert await UsualMachine(probes).wait() == SLOW
    assert probes.taken == LEAST_SEEN


async def test_a_run_waits_for_an_unusual_machine_to_pass() -> None:
    """Faster is as unusual as slower: the other run of the pair will not have it."""
    probes = Probes(*[SLOW] * LEAST_SEEN, FAST, FAST, SLOW)
    machine = UsualMachine(probes)
    await machine.wait()

    assert await machine.wait() == SLOW
    assert probes.taken == LEAST_SEEN + 3


async def test_a_machine_that_has_changed_for_good_is_the_usual_one_soon() -> None:
    """The last probes say what is usual, not all."""
    probes = Probes(*[SLOW] * LEAST_SEEN, FAST)
    machine = UsualMachine(probes)
    await machine.wait()

    assert await machine.wait() == FAST
    assert probes.taken < LEAST_SEEN + SEEN
    assert await machine.wait() == FAST


async def test_a_machine_that_is_never_the_same_is_taken_as_it_is() -> None:
    """The pair is dropped then; waiting for longer would not help."""
    probes = Probes(*(Machine(30e9 * 1.2**n, 400e9) for n in range(60)))

    assert await UsualMachine(probes).wait() == Machine(30e9 * 1.2 ** (TRIES - 1), 400e9)
    assert probes.taken == TRIES


def test_one_disturbed_probe_behind_a_run_is_not_another_machine() -> None:
    """The next one tells."""
    probes = Probes(FAST, SLOW)

    assert UsualMachine(probes).after(SLOW) == SLOW
    assert probes.taken == 2


def test_a_machine_that_changed_during_a_run_is_told() -> None:
    """No probe of a few is like the one before."""
    probes = Probes(FAST)

    assert UsualMachine(probes).after(SLOW) == FAST
    assert probes.taken == TRIES_AFTER
