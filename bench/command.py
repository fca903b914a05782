"""What `headrace bench` does: bring the sides up, run the rounds, write the report."""

import os
import secrets
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.fleet import Fleet, Tell
from bench.page import page
from bench.record import Report, Run, save
from bench.rounds import Course, run_rounds, told
from bench.scenarios import Scenario
from bench.servers import Launch
from libs.engine.model_config import load_model_config

OWN = "headrace"
DTYPE = "bfloat16"  # of the stack that is measured, unless one is said
SEED = 1


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """`base_url` names a stack that runs already; empty, one is started. `peers` are names of bench.peers.install,
    or `headrace-<dtype>`: another stack of ours.
    """

    model_dir: Path
    scenarios: tuple[Scenario, ...]
    rounds: int
    log_dir: Path  # what the servers print, and the run directory of ours: two benches at once would measure each other
    base_url: str = ""
    api_key: str = ""
    dtype: str = DTYPE
    peers: tuple[str, ...] = ()
    json_path: Path | None = None
    html_path: Path | None = None


async def run_bench(options: BenchOptions, tell: Tell) -> Report:
    """The whole bench. Raises BenchError when a side fails, ConfigError for a peer that is not installed."""
    model, cores = load_model_config(options.model_dir), len(os.sched_getaffinity(0))
    started_at, seed = datetime.now(UTC).isoformat(timespec="seconds"), _seed(options)
    options.log_dir.mkdir(parents=True, exist_ok=True)
    launches, runs = _launches(options), list[Run]()
    fleet = Fleet(launches, model.vocab_size, options.log_dir, tell)
    try:
        async with fleet:
            sides = [launch.name for launch in launches]
            course = Course(sides, fleet.fresh, options.scenarios, options.rounds, seed, model, cores)
            async for run in run_rounds(course):
                runs.append(run)
                tell(told(run))
    finally:  # what has been measured is kept, should a side fail later
        report = Report(started_at, options.model_dir.name, cores, _processor(), seed, fleet.sides(), runs)
        _write(report, options)
    return report


def _seed(options: BenchOptions) -> int:
    """Two benches ask for the same, so that they differ in nothing but the machine and the code; only a stack that
    runs already may remember the prompts of the bench before.
    """
    return secrets.randbelow(1 << 30) if options.base_url else SEED


def _write(report: Report, options: BenchOptions) -> None:
    if options.json_path and report.runs:
        save(report, options.json_path)
    if options.html_path and report.runs:
        options.html_path.write_text(page(report), encoding="utf-8")


def _launches(options: BenchOptions) -> list[Launch]:
    """Ours first. The peers' code is imported only where one is asked for."""
    given = Launch(OWN, (), options.model_dir.name, stays=True, base_url=options.base_url, api_key=options.api_key)
    ours = own_stack(OWN, options.model_dir, options.log_dir / "run", options.dtype)
    return [given if options.base_url else ours, *(_peer(name, options) for name in options.peers)]


def _peer(name: str, options: BenchOptions) -> Launch:
    if name.startswith(f"{OWN}-"):
        dtype = name.removeprefix(f"{OWN}-")
        return own_stack(name, options.model_dir, options.log_dir / f"run-{dtype}", dtype)
    from bench.peers.install import launch_peer

    return launch_peer(name, options.model_dir)


def own_stack(name: str, model_dir: Path, run_dir: Path, dtype: str) -> Launch:
    """Ours as `make up` starts it, on another port and in a run directory of its own."""
    up = ("-m", "cli", "up", "--model", str(model_dir), "--dtype", dtype, "--port", "{port}", "--run-dir", str(run_dir))
    return Launch(name, (sys.executable, *up), model_dir.name, start_s=300)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
