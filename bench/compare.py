"""Two reports beside each other: medians by side, and ratios over what both saw the same machine for."""

from collections.abc import Iterator, Sequence
from typing import Final

from bench.figures import KINDS, advantage
from bench.record import Report, Run
from bench.summary import Ratio, by_scenario, pairs, ratio, rows, same_machine
from bench.table import columns, name, number

AGREE: Final = 0.10  # two ratios that differ by no more
Pair = tuple[Run, Run]


def comparison_table(before: Report, after: Report) -> str:
    """`x` is how many times better the second is. Of the ratios to the peers it also tells how many agree."""
    lines = [["scenario", "figure", "of", "first", "second", "x"]]
    changes: list[tuple[Ratio, Ratio]] = []
    later = {(row.scenario, row.figure): row for row in rows(after)}
    for old in rows(before):
        new = later.get((old.scenario, old.figure))
        if new is None:
            continue
        words = [old.scenario, name(old.figure)]
        for side in (side for side in old.values if side in new.values):
            was, now = old.values[side].median, new.values[side].median
            times = advantage(KINDS[old.figure], now, was)
            lines.append([*words, side, number(was), number(now), number(times)])
        for peer, first, second in _ratios(before, after, old.scenario, old.figure):
            changes.append((first, second))
            change = second.median / first.median
            lines.append([*words, f"x {peer}", number(first.median), number(second.median), number(change)])
    return columns(lines) + "\n" + _agreement(changes)


def _ratios(before: Report, after: Report, scenario: str, figure: str) -> Iterator[tuple[str, Ratio, Ratio]]:
    """The peers that both have, with the ratio in each."""
    ours, *peers = (side.name for side in before.sides)
    for peer in peers:
        kept = alike(_pairs(before, scenario, ours, peer), _pairs(after, scenario, ours, peer))
        first, second = (ratio(paired, figure) for paired in kept)
        if first and second:
            yield peer, first, second


def _pairs(report: Report, scenario: str, ours: str, peer: str) -> list[Pair]:
    return pairs(dict(by_scenario(report.runs)).get(scenario, []), ours, peer)


def alike(first: Sequence[Pair], second: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The pairs of each for which the other has one on the same machine: by the rule that makes two runs a pair, now
    between reports. A ratio changes with the machine, so that those of others tell nothing of the code.
    """
    return _met(first, second), _met(second, first)


def _met(some: Sequence[Pair], others: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in some if any(same_machine(pair[0].probe, other[0].probe) for other in others)]


def _agreement(changes: Sequence[tuple[Ratio, Ratio]]) -> str:
    """Ratios further apart whose intervals meet were not measured well enough to tell; others have changed."""
    if not changes:
        return ""
    apart = [(a, b) for a, b in changes if max(a.median, b.median) > (1 + AGREE) * min(a.median, b.median)]
    meet = sum(a.low <= b.high and b.low <= a.high for a, b in apart)
    return (
        f"{len(changes) - len(apart)} of {len(changes)} ratios agree within {AGREE:.0%}, over pairs that found the "
        f"same machine in both; of the others {meet} have intervals that meet\n"
    )
