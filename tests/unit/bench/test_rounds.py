"""What has to be so before a run begins."""

from dataclasses import dataclass

import pytest

from bench import rounds
from bench.client import BenchError
from bench.rounds import lacking, settle, turns
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
