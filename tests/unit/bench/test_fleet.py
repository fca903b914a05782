"""Which servers are started when."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import fleet
from bench.client import BenchError, Target
from bench.fleet import Fleet
from bench.servers import Launch, running


@dataclass
class Started:
    """A server that answers at once. Its memory is told only while it runs."""

    target: Target
    started_in_s: float
    runs: bool = True

    def memory_bytes(self) -> int:
        return 70_000_000 * self.runs


class World:
    """Notes every start, warm-up and stop, in their order; those in `broken` do not come up."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.broken: set[str] = set()

    @asynccontextmanager
    async def running(self, launch: Launch, _vocab_size: int, _log_path: Path) -> AsyncIterator[Started]:
        if launch.name in self.broken:
            raise BenchError(f"{launch.name} did not come up")
        self.seen.append(f"start {launch.name}")
        server = Started(Target(launch.name, "", launch.model), 3.0 + len(self.seen))
        try:
            yield server
        finally:
            server.runs = False
            self.seen.append(f"stop {launch.name}")

    async def warm(self, target: Target, *_rest: object) -> None:
        self.seen.append(f"warm {target.name}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """In place of processes."""
    made = World()
    monkeypatch.setattr(fleet, "running", made.running)
    monkeypatch.setattr(fleet, "run_scenario", made.warm)
    return made


def fleet_of(*launches: Launch) -> Fleet:
    return Fleet(launches, 100, Path(), lambda line: None)


QUICK, SLOW = Launch("ours", ("serve",), "m", {"A": "1"}), Launch("slow", ("serve", "slowly"), "m", stays=True)


async def test_a_server_is_started_anew_for_each_round_unless_it_stays(world: World) -> None:
    """Each start is warmed up, and all are stopped in the end."""
    async with fleet_of(QUICK, SLOW) as servers:
        assert [server.target.name for server in await servers.fresh()] == ["ours", "slow"]
        world.seen.clear()
        assert [server.target.name for server in await servers.fresh()] == ["ours", "slow"]
        assert world.seen == ["stop ours", "start ours", "warm ours"]

    assert world.seen[3:] == ["stop ours", "stop slow"]


async def test_a_report_tells_the_memory_that_a_server_had_before_it_was_stopped(world: World) -> None:
    """Its command with what it adds to the environment, and how long the last start took."""
    async with fleet_of(QUICK, SLOW) as servers:
        await servers.fresh()

    told = servers.sides()
    assert [(side.name, side.memory_mb) for side in told] == [("ours", 70), ("slow", 70)]
    assert [side.command for side in told] == [["A=1", "serve"], ["serve", "slowly"]]
    assert told[0].started_in_s == 4.0


async def test_a_server_that_does_not_come_up_leaves_none_running(world: World) -> None:
    """Also in a later round."""
    with pytest.raises(BenchError, match="come up"):
        async with fleet_of(SLOW, QUICK) as servers:
            await servers.fresh()
            world.broken.add("ours")
            await servers.fresh()

    assert sorted(word for word in world.seen if word.startswith("stop")) == ["stop ours", "stop slow"]
    assert [side.name for side in servers.sides()] == ["slow", "ours"]


async def test_nothing_is_started_for_a_stack_that_runs_already(tmp_path: Path) -> None:
    """It has no process of ours, and no log."""
    given = Launch("ours", (), "m", stays=True, base_url="http://127.0.0.1:1/v1", api_key="k")

    async with running(given, 100, tmp_path / "log") as server:
        assert (server.target.base_url, server.target.api_key, server.cpu_s()) == (given.base_url, "k", 0.0)

    assert not (tmp_path / "log").exists()
