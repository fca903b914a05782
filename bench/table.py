"""Prints a report as plain text columns."""

from collections.abc import Sequence

from bench.figures import CONFIDENCE, KINDS
from bench.record import Report
from bench.summary import Row, by_scenario, dropped, rows

NAME_COLUMNS = 2  # the first columns hold words, the others numbers


def report_table(report: Report) -> str:
    """A row for each figure: its limit, each side's median and fraction of the limit, and ours against each peer."""
    ours, *peers = (side.name for side in report.sides)
    head = ["scenario", "figure", "limit", ours, *(cell for peer in peers for cell in (peer, f"x {peer}"))]
    lines = [head]
    for row in rows(report):
        lines.append([row.scenario, *cells(row, ours, peers)])
    counted = ", ".join(f"{scenario} {len({run.round for run in runs})}" for scenario, runs in by_scenario(report.runs))
    foot = f"rounds: {counted}; (%) is the fraction of the limit"
    if peers:
        foot += (
            f"; x is how many times better {ours} is: the median, its interval at {CONFIDENCE:.0%} confidence, "
            f"[pairs], {dropped(report)} pairs dropped"
        )
    return f"{columns(lines)}\n{foot}\n"


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


def cells(row: Row, ours: str, peers: Sequence[str]) -> list[str]:
    """A figure, its limit, our value, and of each peer the value and how many times better ours is."""
    beside = (cell for peer in peers for cell in (_value(row, peer), _ratio(row, peer)))
    return [name(row.figure), number(row.limit), _value(row, ours), *beside]


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
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) [{ratio.pairs}]"
