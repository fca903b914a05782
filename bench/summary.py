"""From many runs to what is claimed: medians, fractions of the limits, and medians of paired ratios. Pure."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from bench.figures import KINDS, advantage, differ, median_interval, reached
from bench.record import Probe, Report, Run

MAX_PROBE_DIFFERENCE: Final = 0.10  # beyond it the machine was not the same


@dataclass(frozen=True, slots=True)
class Value:
    """A side's median, and the median fraction of the limit that it reached; None without a limit."""

    median: float
    reached: float | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times better ours is, over `pairs` rounds; `low` to `high` is the median's interval."""

    median: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one scenario, by side; `limit` is the median of the limits at the times of the runs."""

    scenario: str
    figure: str
    limit: float | None
    values: dict[str, Value]
    ratios: dict[str, Ratio]


def rows(report: Report) -> list[Row]:
    """In the order of the runs and of their figures."""
    ours, *peers = (side.name for side in report.sides)
    return [
        Row(
            scenario,
            figure,
            _limit(runs, figure),
            {side.name: value for side in report.sides if (value := _value(runs, side.name, figure))},
            {peer: found for peer in peers if (found := ratio(pairs(runs, ours, peer), figure))},
        )
        for scenario, runs in by_scenario(report.runs)
        for figure in runs[0].figures
    ]


def by_scenario(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    names = dict.fromkeys(run.scenario for run in runs)
    return [(name, [run for run in runs if run.scenario == name]) for name in names]


def pairs(runs: Sequence[Run], ours: str, peer: str) -> list[tuple[Run, Run]]:
    """Runs of the two sides in the same round of the same scenario, where the machine was the same for both, and at
    the end of each the same as at its beginning.
    """
    theirs = {(run.scenario, run.round): run for run in runs if run.side == peer}
    both = [(run, theirs.get((run.scenario, run.round))) for run in runs if run.side == ours]
    return [(one, other) for one, other in both if other and _counts(one, other)]


def dropped(report: Report) -> int:
    """Pairs that do not count."""
    ours, *peers = (side.name for side in report.sides)
    return sum(sum(run.side == peer for run in report.runs) - len(pairs(report.runs, ours, peer)) for peer in peers)


def _counts(one: Run, other: Run) -> bool:
    return same_machine(one.probe, other.probe) and all(same_machine(run.probe, run.after) for run in (one, other))


def same_machine(one: Probe, other: Probe | None) -> bool:
    """Nothing is known where there was no second probe."""
    return other is None or differ(msgspec.structs.asdict(one), msgspec.structs.asdict(other)) <= MAX_PROBE_DIFFERENCE


def _limit(runs: Sequence[Run], figure: str) -> float | None:
    found = [run.limits[figure] for run in runs if figure in run.limits]
    return statistics.median(found) if found else None


def _value(runs: Sequence[Run], side: str, figure: str) -> Value | None:
    found = [run for run in runs if run.side == side and figure in run.figures]
    if not found:
        return None
    fractions = [part for run in found if (part := _reached(run, figure)) is not None]
    median = statistics.median(run.figures[figure] for run in found)
    return Value(median, statistics.median(fractions) if fractions else None)


def _reached(run: Run, figure: str) -> float | None:
    return reached(KINDS[figure], run.limits[figure], run.figures[figure]) if figure in run.limits else None


def ratio(paired: Sequence[tuple[Run, Run]], figure: str) -> Ratio | None:
    """Of the pairs that have the figure on both sides; None where none has."""
    found = list(_advantages(paired, figure))
    return Ratio(statistics.median(found), *median_interval(found), len(found)) if found else None


def _advantages(paired: Sequence[tuple[Run, Run]], figure: str) -> Iterator[float]:
    for ours, theirs in paired:
        value = advantage(KINDS[figure], ours.figures[figure], theirs.figures[figure])
        if value is not None:
            yield value
