"""Writes the table of docs/survival.md from histories: `python -m tests.chaos.survival FOLDER`.

A history's name is `survival/<fault>/<run>`; runs of one fault make one row. Everything is measured from outside: what
clients saw, when, and what the stack held once it was at rest.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from tests.chaos.history import History, load

PAGE: Final = Path(__file__).parents[2] / "docs" / "survival.md"
BEGIN, END = "<!-- begin: written by tests/chaos/survival.py -->", "<!-- end -->"
HEAD: Final = (
    "| fault | runs | requests | failed requests | longest stall, s | detection, s | recovery, s "
    "| tokens recomputed | blocks leaked |",
    "|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True, slots=True)
class Row:
    """The worst of all runs of one fault; `detection_s` is None where nobody has to notice."""

    fault: str
    runs: int
    requests: int
    failed_requests: int
    longest_stall_s: float
    detection_s: float | None
    recovery_s: float
    tokens_recomputed: int
    blocks_leaked: int


def row_of(fault: str, histories: Sequence[History]) -> Row:
    operations = [operation for history in histories for operation in history.operations]
    detections = [seen for history in histories if (seen := detection_s(history)) is not None]
    return Row(
        fault=fault,
        runs=len(histories),
        requests=len(operations),
        failed_requests=sum(operation.outcome != "ok" for operation in operations),
        longest_stall_s=max(map(stall_s, histories)),
        detection_s=max(detections, default=None),
        recovery_s=max(map(recovery_s, histories)),
        tokens_recomputed=sum(history.tokens_recomputed for history in histories),
        blocks_leaked=sum(map(_leaked, histories)),
    )


def stall_s(history: History) -> float:
    """The longest wait of any client for news, of those that were not over when the first fault struck."""
    struck_s = history.planted[0].at_s if history.planted else 0.0
    waits = [0.0]
    for operation in history.operations:
        times = [operation.invoked_s, *(part.at_s for part in operation.parts), operation.ended_s]
        waits += [after - before for before, after in pairwise(times) if after > struck_s]
    return max(waits)


def detection_s(history: History) -> float | None:
    """From the first fault to the moment at which a service said that it had noticed."""
    if not history.planted or not history.noticed_s:
        return None
    return history.noticed_s - history.planted[0].at_s


def recovery_s(history: History) -> float:
    """From the first fault until every stream that it found under way had its next news."""
    if not history.planted:
        return 0.0
    struck_s = history.planted[0].at_s
    waits = [0.0]
    for operation in history.operations:
        if operation.invoked_s <= struck_s < operation.ended_s:
            news = [part.at_s for part in operation.parts if part.at_s > struck_s] or [operation.ended_s]
            waits.append(news[0] - struck_s)
    return max(waits)


def table(rows: Iterable[Row]) -> str:
    return "\n".join([*HEAD, *map(_line, rows)])


def rows_of(histories: Iterable[History]) -> list[Row]:
    """By fault, in the order of their names."""
    ordered = sorted(histories, key=lambda history: history.name)
    return [row_of(fault, list(runs)) for fault, runs in groupby(ordered, key=_fault)]


def update(page: str, rows: Iterable[Row]) -> str:
    """The page with a new table; its words stay."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def _fault(history: History) -> str:
    return history.name.split("/")[1]


def _leaked(history: History) -> int:
    blocks = history.quiet.blocks if history.quiet else {}
    return blocks.get("held", 0) + blocks.get("freeing", 0)


def _line(row: Row) -> str:
    detection = "" if row.detection_s is None else f"{row.detection_s:.2f}"
    cells = (
        row.fault,
        row.runs,
        row.requests,
        row.failed_requests,
        f"{row.longest_stall_s:.2f}",
        detection,
        f"{row.recovery_s:.2f}",
        row.tokens_recomputed,
        row.blocks_leaked,
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text(), rows_of(map(load, sorted(Path(sys.argv[1]).glob("survival_*.json"))))))
