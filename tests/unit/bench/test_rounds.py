"""What has to be so before a run begins."""

from dataclasses import dataclass

import pytest

from bench import rounds
from bench.client import BenchError
from bench.rounds import settle


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
