"""What has to be so before a run begins."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from bench import rounds
from bench.client import BenchError, Target
from bench.record import Run
from bench.rounds import Course, lacking, run_rounds, settle, turns
from bench.scenarios import Scenario
from tests.unit.bench.reports import run


@dataclass
class Counted:
    """A server whose CPU time grows by the next of `steps` each time that it is asked."""

    steps: list[float]
    total_s: float = 0.0

    def cpu_s(self) -> float:
        self.total_s += self.steps.pop(0) if self.steps else 0.0
        return self.total_s


async def test_a_run_waits_until_the_servers_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that spins after its last request delays the next run, and is asked no more once it rests."""
    monkeypatch.setattr(rounds, "SETTLE_S", 0.001)
    spinning, resting = Counted([0, 1, 1, 1, 0, 0]), Counted([])

    await settle([spinning, resting])  # type: ignore[list-item]

    assert spinning.total_s == 3


async def test_a_server_that_never_rests_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peers would be measured on what it leaves of the machine."""
    monkeypatch.setattr(rounds, "SETTLE_S", 0.001)

    with pytest.raises(BenchError, match="nobody asks"):
        await settle([Counted([1.0] * 200)])  # type: ignore[list-item]


def test_ours_runs_next_to_each_of_two_peers() -> None:
    """A machine changes with time: what lies between the two runs of a pair blurs their ratio."""
    assert turns(["ours", "one", "other"], 0) == ["one", "ours", "other"]


def test_the_order_turns_round_by_round() -> None:
    """Whoever comes second finds the machine warmer."""
    assert turns(["ours", "one"], 0) == ["one", "ours"]
    assert turns(["ours", "one"], 1) == ["ours", "one"]


def test_a_round_more_is_for_whoever_lacks_pairs() -> None:
    """The machine was another one for a run of one peer: the other peer has what it needs, and is not asked again."""
    runs = [run(0, "ours", 10), run(0, "one", 20, read_gb_s=45.0), run(0, "other", 20)]
    sides = ["ours", "one", "other"]
    assert lacking(runs, sides, "S1", 1) == ["ours", "one"]
    assert lacking(runs, sides, "S1", 2) == sides
    assert lacking([*runs, run(1, "ours", 10), run(1, "one", 20)], sides, "S1", 1) == []


def test_nobody_runs_where_nobody_lacks_pairs() -> None:
    """Ours alone would be compared with nothing."""
    assert lacking([run(0, "ours", 10)], ["ours"], "S1", 1) == [] == turns([], 5)


@dataclass
class Resting:
    """A server that does nothing."""

    target: Target

    def cpu_s(self) -> float:
        return 0.0


@dataclass
class Played:
    """A course whose runs take no time. In the first round the machine changes during each of the peer's runs."""

    starts: int = 0
    ran: list[str] = field(default_factory=list)

    async def fresh(self) -> list[Resting]:
        self.starts += 1
        return [Resting(Target(name, "", "m")) for name in ("ours", "one", "other")]

    async def run(self, _course: Course, _usual: Any, _servers: Any, server: Any, scenario: Scenario, turn: int) -> Run:
        name = server.target.name
        self.ran.append(f"{scenario.name} {turn} {name}")
        changed = name == "one" and self.starts == 1
        return run(turn, name, 10, scenario=scenario.name, after_gb_s=60.0 if changed else 0.0)


async def test_pairs_that_do_not_count_are_made_up_for_in_rounds_with_servers_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scenario of two turns is run twice a round by everybody, and no longer by who has enough pairs."""
    played, scenarios = Played(), (Scenario("S1", "", 1, 1, 8, 8), Scenario("S2", "", 1, 1, 8, 8, turns=2))
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)
    monkeypatch.setattr(rounds, "_run", played.run)
    course = Course(("ours", "one", "other"), played.fresh, scenarios, 1, 1, None, 1)  # type: ignore[arg-type]

    runs = [run async for run in run_rounds(course)]

    assert len(runs) == len(played.ran)
    assert played.starts == 2
    assert played.ran[:3] == ["S1 0 one", "S1 0 ours", "S1 0 other"]
    assert played.ran[3:9] == [f"S2 {turn} {side}" for turn, sides in SIDES for side in sides]
    assert played.ran[9:] == ["S1 1 ours", "S1 1 one", "S2 2 one", "S2 2 ours", "S2 3 ours", "S2 3 one"]


SIDES = ((0, ("one", "ours", "other")), (1, ("other", "ours", "one")))
