"""Where a step thread's time goes: laps add up, and cost nothing while nobody asks."""

from libs.engine.worker.laps import ABSORB, ENGINE, IDLE, ROWS, Laps, Profile


class Clock:
    """Ten more at each look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        return 10 * self.looks


class Ops:
    """Kernels that took seven of whatever a step took."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def watch(self) -> None:
        self.log.append("watch")

    def unwatch(self) -> dict[str, int]:
        self.log.append("unwatch")
        return {"qkv": 4, "head": 3, "swiglu": 0}


def test_laps_add_up_to_the_time_of_the_profile() -> None:
    """Each goes to what was just done, so nothing is left between two of them."""
    clock = Clock()
    laps = Laps(clock)
    laps.begin()
    for _ in range(3):
        laps.lap(ROWS)
        laps.step(8)
        laps.lap(ABSORB)
    laps.lap(IDLE)

    profile = laps.end()

    assert profile == Profile(100, 3, 24, {ROWS: 30, "kernels": 30, ABSORB: 30, IDLE: 10})
    assert sum(profile.laps_ns.values()) == profile.duration_ns


def test_an_engine_that_counts_its_ops_has_them_told_apart() -> None:
    """What they did not take of a step is the interpreter's."""
    clock = Clock()
    ops = Ops()
    laps = Laps(clock, ops)
    laps.begin()
    laps.step(1)

    profile = laps.end()

    assert profile.laps_ns == {"kernels;qkv": 4, "kernels;head": 3, ENGINE: 3}
    assert ops.log == ["watch", "unwatch"]


def test_while_nobody_asks_the_clock_is_not_read() -> None:
    """Before the first profile and after it."""
    clock = Clock()
    laps = Laps(clock)
    for _ in range(2):
        laps.lap(ROWS)
        laps.step(8)
        looks = clock.looks
        laps.begin()
        laps.lap(ROWS)
        laps.end()

        assert clock.looks == looks + 2

    assert clock.looks == 4


def test_each_profile_begins_anew() -> None:
    """The second has nothing of the first."""
    clock = Clock()
    laps = Laps(clock)
    for _ in range(2):
        laps.begin()
        laps.lap(IDLE)
        profile = laps.end()

    assert profile == Profile(10, 0, 0, {IDLE: 10})
