"""Prints a report, or two beside each other, as plain text columns."""

from collections.abc import Sequence

from bench.figures import KINDS, advantage
from bench.record import Report
from bench.summary import Row, by_scenario, dropped, rows

NAME_COLUMNS = 2  # the first columns hold words, the others numbers


def report_table(report: Report) -> str:
    """A row for each figure: its limit, each side's median and fraction of the limit, and ours against each peer."""
    ours, *peers = (side.name for side in report.sides)
    head = ["scenario", "figure", "limit", ours, *(cell for peer in peers for cell in (peer, f"x {peer}"))]
    lines = [head]
    for row in rows(report):
        cells = [row.scenario, name(row.figure), number(row.limit), _value(row, ours)]
        for peer in peers:
            cells += [_value(row, peer), _ratio(row, peer)]
        lines.append(cells)
    counted = ", ".join(f"{scenario} {len({run.round for run in runs})}" for scenario, runs in by_scenario(report.runs))
    foot = f"rounds: {counted}; (%) is the fraction of the limit"
    if peers:
        foot += f"; x is how many times better {ours} is, [pairs], {dropped(report)} pairs dropped"
    return f"{columns(lines)}\n{foot}\n"


def comparison_table(before: Report, after: Report) -> str:
    """Medians of two reports by side, and of their ratios to the peers; `x` is how many times better the second is."""
    lines = [["scenario", "figure", "of", "first", "second", "x"]]
    later = {(row.scenario, row.figure): row for row in rows(after)}
    for old in rows(before):
        new = later.get((old.scenario, old.figure))
        if new is None:
            continue
        kind, words = KINDS[old.figure], [old.scenario, name(old.figure)]
        for side in old.values.keys() & new.values.keys():
            first, second = old.values[side].median, new.values[side].median
            lines.append([*words, side, number(first), number(second), number(advantage(kind, second, first))])
        for peer in old.ratios.keys() & new.ratios.keys():
            first, second = old.ratios[peer].median, new.ratios[peer].median
            lines.append([*words, f"x {peer}", number(first), number(second), number(second / first)])
    return columns(lines) + "\n"


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Cells in columns, words to the left and numbers to the right."""
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n < NAME_COLUMNS else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def name(figure: str) -> str:
    kind = KINDS[figure]
    return f"{kind.title} ({kind.unit})" if kind.unit else kind.title


def number(value: float | None) -> str:
    """Three significant digits, thousands in full."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def _value(row: Row, side: str) -> str:
    if side not in row.values:
        return "-"
    value = row.values[side]
    share = f" ({value.reached:.0%})" if value.reached is not None else ""
    return number(value.median) + share


def _ratio(row: Row, peer: str) -> str:
    if peer not in row.ratios:
        return "-"
    ratio = row.ratios[peer]
    return f"{ratio.median:.2f} [{ratio.pairs}]"
