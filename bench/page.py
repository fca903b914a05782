"""The report as one HTML page: tables, and plots drawn as inline SVG. No script, no font, nothing from elsewhere."""

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree

from bench.figures import CONFIDENCE, KINDS, QUANTILES
from bench.record import Report, Run
from bench.scenarios import SCENARIOS
from bench.summary import Row, by_scenario, dropped, rows
from bench.table import cells, name, number

Element = ElementTree.Element
COLOURS: Final = ("#0a6fb8", "#c8553d", "#4f8a3c", "#8a5fbf")  # by side, ours first; told apart by text as well
WIDTH, LABEL, ROW, AXIS = 620, 110, 24, 26
CURVE_HEIGHT: Final = 170
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --faint: #8a94a3; --paper: #fff; --line: #d5dae1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --faint: #8d97a6; --paper: #14181f; --line: #333b47; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .6rem 0 1rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
figure { display: inline-block; margin: 0 1rem 1rem 0; }
figcaption, .faint { color: var(--faint); font-size: 13px; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .line { stroke: var(--line); } svg .limit { stroke: var(--ink); stroke-dasharray: 4 3; }
"""


def page(report: Report) -> str:
    """A whole HTML document, well-formed as XML too."""
    found = rows(report)
    titles = {scenario.name: scenario.title for scenario in SCENARIOS}
    body = _node(
        "body", _node("h1", f"Headrace bench: {report.model}"), _node("p", _about(report), **{"class": "faint"})
    )
    for scenario, runs in by_scenario(report.runs):
        own = [row for row in found if row.scenario == scenario]
        body.append(_node("h2", f"{scenario}: {titles.get(scenario, scenario)}"))
        body.append(_table(report, own))
        body.extend(_dots(report, row, runs) for row in own)
        if any(run.gaps_ms for run in runs):
            body.append(_curves(report, runs))
    body.append(_sides(report))
    head = _node("head", _node("meta", charset="utf-8"), _node("title", "Headrace bench"), _node("style", STYLE))
    html = _node("html", head, body, lang="en")
    return "<!DOCTYPE html>\n" + ElementTree.tostring(html, encoding="unicode", short_empty_elements=True) + "\n"


def _about(report: Report) -> str:
    return (
        f"{report.started_at}, {report.cores} cores of {report.processor}. A dot is a run, the thick mark the "
        f"median, the dashed line the limit. Ratios tell how many times better ours is: the median over paired rounds, "
        f"its interval at {CONFIDENCE:.0%} confidence, [pairs]; {dropped(report)} pairs were dropped because the "
        f"machine changed between or during the two runs."
    )


def _node(tag: str, *content: "str | Element", **attributes: object) -> Element:
    node = Element(tag, {key: str(value) for key, value in attributes.items()})
    for part in content:
        if isinstance(part, str):
            node.text = (node.text or "") + part
        else:
            node.append(part)
    return node


def _table(report: Report, own: Sequence[Row]) -> Element:
    ours, *peers = (side.name for side in report.sides)
    head = ["", "limit", ours, *(cell for peer in peers for cell in (peer, f"× {peer}"))]
    table = _node("table", _node("tr", *(_node("th", cell) for cell in head)))
    for row in own:
        table.append(_node("tr", *(_node("td", cell) for cell in cells(row, ours, peers))))
    return table


def _dots(report: Report, row: Row, runs: Sequence[Run]) -> Element:
    """One line a side, one dot a run; the axis begins at zero, so that lengths may be compared."""
    sides = [side.name for side in report.sides if side.name in row.values]
    values = [run.figures[row.figure] for run in runs if row.figure in run.figures]
    top = max([*values, row.limit or 0.0]) * 1.05 or 1.0
    height = ROW * len(sides) + AXIS

    def x(value: float) -> float:
        return round(LABEL + (WIDTH - LABEL - 20) * value / top, 1)

    svg = _svg(height, f"{name(row.figure)} by side")
    svg.extend(_ticks(x, top, height - AXIS))
    for n, side in enumerate(sides):
        y, colour = ROW * n + ROW / 2, _colour(report, side)
        svg.append(_node("text", side, x=0, y=y + 4))
        for run in runs:
            if run.side == side and row.figure in run.figures:
                svg.append(_node("circle", cx=x(run.figures[row.figure]), cy=y, r=4, fill=colour, opacity=0.55))
        median = x(row.values[side].median)
        svg.append(_line(median, y - 9, median, y + 9, stroke=colour, **{"stroke-width": 3}))
    if row.limit:
        svg.append(_line(x(row.limit), 0, x(row.limit), height - AXIS, **{"class": "limit"}))
    better = "less is better" if KINDS[row.figure].better == "low" else "more is better"
    return _node("figure", _node("figcaption", f"{name(row.figure)}, {better}"), svg)


def _curves(report: Report, runs: Sequence[Run]) -> Element:
    """How long the gaps between tokens are: a line a run, the share of gaps up to that length from left to right."""
    found = [run for run in runs if run.gaps_ms]
    top = max(max(run.gaps_ms) for run in found) or 1.0
    svg = _svg(CURVE_HEIGHT + AXIS, "gaps between tokens by their rank")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = LABEL + (WIDTH - LABEL - 20) * share
        svg.append(_line(at, 0, at, CURVE_HEIGHT, **{"class": "line"}))
        svg.append(_node("text", f"p{share * 100:.0f}", x=at - 10, y=CURVE_HEIGHT + 18))
    svg.append(_node("text", f"{number(top)} ms", x=0, y=12))
    for run in found:
        points = " ".join(
            f"{LABEL + (WIDTH - LABEL - 20) * share:.1f},{CURVE_HEIGHT * (1 - gap / top):.1f}"
            for share, gap in zip(QUANTILES, run.gaps_ms, strict=True)
        )
        line = {"fill": "none", "stroke": _colour(report, run.side), "stroke-width": 1.5, "opacity": 0.7}
        svg.append(_node("polyline", points=points, **line))
    return _node("figure", _node("figcaption", "gaps between tokens, shortest to longest; colours as above"), svg)


def _sides(report: Report) -> Element:
    table = _node("table", _node("tr", *(_node("th", cell) for cell in ("side", "ready after", "memory", "command"))))
    for side in report.sides:
        cells = (side.name, f"{side.started_in_s:.1f} s", f"{side.memory_mb:,} MB", " ".join(side.command))
        table.append(_node("tr", *(_node("td", cell) for cell in cells)))
    return _node("section", _node("h2", "Servers"), table)


def _svg(height: float, label: str) -> Element:
    size = {"width": WIDTH, "height": height, "viewBox": f"0 0 {WIDTH} {height}"}
    return _node("svg", xmlns="http://www.w3.org/2000/svg", role="img", **size, **{"aria-label": label})


def _ticks(x: "object", top: float, bottom: float) -> Iterable[Element]:
    assert callable(x)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = x(top * share)
        yield _line(at, 0, at, bottom, **{"class": "line"})
        yield _node("text", number(top * share), x=at - 12, y=bottom + 18)


def _line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Element:
    return _node("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def _colour(report: Report, side: str) -> str:
    return COLOURS[[known.name for known in report.sides].index(side) % len(COLOURS)]
