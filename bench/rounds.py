"""Interleaves the sides: round by round, scenario by scenario, each side once, never two of them under load at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from bench.client import BenchError
from bench.figures import figures, gap_quantiles_ms
from bench.limits import Machine, limits, probe
from bench.load import Outcome, run_scenario
from bench.record import Probe, Run
from bench.scenarios import Scenario
from bench.servers import Server
from bench.summary import pairs
from bench.usual import UsualMachine
from libs.engine.model_config import ModelConfig

T = TypeVar("T")

SETTLE_S: Final = 0.5
SETTLE_TRIES: Final = 40
IDLE_SHARE: Final = 0.06  # of a core, by all servers together


@dataclass(frozen=True, slots=True)
class Course:
    """What is run. `fresh` gives the servers of the next round by the names of `sides`; ours is the first."""

    sides: Sequence[str]
    fresh: Callable[[], Awaitable[Sequence[Server]]]
    scenarios: Sequence[Scenario]
    rounds: int
    seed: int
    model: ModelConfig
    cores: int


async def run_rounds(course: Course) -> AsyncIterator[Run]:
    """Rounds until every peer has enough pairs that count in every scenario, at most twice as many as asked for."""
    runs: list[Run] = []
    usual = UsualMachine(lambda: probe(course.cores))
    for number in range(2 * course.rounds):
        if not any(_due(course, runs, scenario, number) for scenario in course.scenarios):
            return
        servers = await course.fresh()
        await settle(servers)
        for scenario in course.scenarios:
            for turn in range(number * scenario.turns, (number + 1) * scenario.turns):
                sides = _due(course, runs, scenario, number)
                for server in turns([server for server in servers if server.target.name in sides], turn):
                    runs.append(await _run(course, usual, servers, server, scenario, turn))
                    yield runs[-1]


def turns(servers: Sequence[T], number: int) -> list[T]:
    """The order of a round: ours next to a peer on either side, since a machine changes with time; and turned round by
    round, since whoever comes second finds it warmer.
    """
    order = [*servers[1:2], *servers[:1], *servers[2:]]
    return order if number % 2 == 0 else order[::-1]


def _due(course: Course, runs: Sequence[Run], scenario: Scenario, number: int) -> Sequence[str]:
    """In the rounds that were asked for all sides; in those beyond only who lacks pairs, and ours."""
    if number < course.rounds:
        return course.sides
    return lacking(runs, course.sides, scenario.name, course.rounds * scenario.turns)


def lacking(runs: Sequence[Run], sides: Sequence[str], scenario: str, enough: int) -> list[str]:
    """Ours, the first of `sides`, and the peers that have fewer pairs that count; nobody where all have enough."""
    ours, *peers = sides
    of_scenario = [run for run in runs if run.scenario == scenario]
    short = [peer for peer in peers if len(pairs(of_scenario, ours, peer)) < enough]
    return [ours, *short] if short else []


async def _run(
    course: Course, usual: UsualMachine, servers: Sequence[Server], server: Server, scenario: Scenario, turn: int
) -> Run:
    before = await usual.wait()
    before_s = {other.target.name: other.cpu_s() for other in servers}
    outcome = await run_scenario(server.target, scenario, course.model.vocab_size, course.seed + turn)
    used_s = {other.target.name: other.cpu_s() - before_s[other.target.name] for other in servers}
    server_cpu_s = used_s.pop(server.target.name)
    _check_hits(server, scenario, outcome)
    await settle(servers)
    return Run(
        round=turn,
        scenario=scenario.name,
        side=server.target.name,
        probe=_told_probe(before),
        figures={name: round(value, 4) for name, value in figures(scenario, outcome).items()},
        limits={name: round(value, 4) for name, value in limits(scenario, course.model, before).items()},
        gaps_ms=gap_quantiles_ms(outcome),
        wall_s=round(outcome.wall_s, 3),
        client_cpu_s=outcome.client_cpu_s,
        server_cpu_s=round(server_cpu_s, 2),
        idle_cpu_s=round(sum(used_s.values()), 2),
        after=_told_probe(usual.after(before)),
    )


async def settle(servers: Sequence[Server]) -> None:
    """Wait until nobody computes: some workers go on spinning for a second after their last request."""
    for _ in range(SETTLE_TRIES):
        before_s = sum(server.cpu_s() for server in servers)
        await asyncio.sleep(SETTLE_S)
        if sum(server.cpu_s() for server in servers) - before_s <= IDLE_SHARE * SETTLE_S:
            return
    raise BenchError("the servers compute though nobody asks them; their figures would be those of a smaller machine")


def _check_hits(server: Server, scenario: Scenario, outcome: Outcome) -> None:
    """Only a scenario with a shared prefix may find one."""
    hits = sum(reply.cached_tokens for reply in outcome.replies)
    if hits and not scenario.shared_tokens:
        raise BenchError(f"{server.target.name}: {hits} prompt tokens of {scenario.name} were cached before it began")


def _told_probe(machine: Machine) -> Probe:
    return Probe(round(machine.read_bytes_s / 1e9, 2), round(machine.matrix_ops_s / 1e9, 1))


def told(run: Run) -> str:
    """One line on a run, for whoever waits."""
    values = "  ".join(f"{name} {value:.4g}" for name, value in run.figures.items())
    probed = " then ".join(
        f"{at.read_gb_s:.1f} GB/s, {at.matrix_gflop_s:.0f} GFLOP/s" for at in (run.probe, run.after) if at
    )
    shares = f"client {run.client_cpu_s / run.wall_s:.1%} of a core, idle servers {run.idle_cpu_s / run.wall_s:.1%}"
    return f"round {run.round} {run.scenario} {run.side}: {values}  ({probed}; {shares})"
