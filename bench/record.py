"""What a bench leaves behind: every run of every round as plain data, in one JSON file."""

from pathlib import Path
from typing import Final

import msgspec

from bench.client import BenchError

VERSION: Final = 1


class Probe(msgspec.Struct, frozen=True):
    """What the machine could do at one moment."""

    read_gb_s: float
    matrix_gflop_s: float


class Run(msgspec.Struct, frozen=True):
    """One side's run of one scenario. Those of the sides that have the same `round` are pairs."""

    round: int
    scenario: str
    side: str
    probe: Probe  # just before
    figures: dict[str, float]
    limits: dict[str, float]
    gaps_ms: list[float]  # of its streams, at bench.figures.QUANTILES
    wall_s: float
    client_cpu_s: float
    server_cpu_s: float  # 0 where the server was started by somebody else
    idle_cpu_s: float  # what the other servers used meanwhile
    after: Probe | None = None  # just behind; older reports have none


class Side(msgspec.Struct, frozen=True):
    """A server: how it was started, how long that took the last time, and its memory at the end."""

    name: str
    command: list[str]
    started_in_s: float
    memory_mb: int


class Report(msgspec.Struct, frozen=True):
    """`sides` begins with ours. `seed` gives the prompts of round n as seed + n."""

    started_at: str
    model: str
    cores: int
    processor: str
    seed: int
    sides: list[Side]
    runs: list[Run]
    version: int = VERSION


def save(report: Report, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))


def load(path: Path) -> Report:
    """Raises BenchError for a file that is not a report of this version."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.MsgspecError) as error:
        raise BenchError(f"{path} is not a bench report: {error}") from error
    if report.version != VERSION:
        raise BenchError(f"{path} is of version {report.version}, not {VERSION}")
    return report
