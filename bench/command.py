"""What `headrace bench` does: bring the sides up, run the rounds, write the report."""

import os
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.client import Target
from bench.record import Report, Side, save
from bench.rounds import Course, Tell, run_rounds
from bench.scenarios import Scenario
from bench.servers import Launch, Server, running
from libs.engine.model_config import load_model_config


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """`base_url` names a stack that runs already; empty, one is started. `peers` are names of bench.peers."""

    model_dir: Path
    scenarios: tuple[Scenario, ...]
    rounds: int
    base_url: str = ""
    api_key: str = ""
    peers: tuple[str, ...] = ()
    json_path: Path | None = None
    html_path: Path | None = None


async def run_bench(options: BenchOptions, tell: Tell) -> Report:
    """The whole bench. Raises BenchError when a side fails, ConfigError for a peer that is not installed."""
    from bench.page import page

    model, cores = load_model_config(options.model_dir), len(os.sched_getaffinity(0))
    started_at, seed = datetime.now(UTC).isoformat(timespec="seconds"), secrets.randbelow(1 << 30)
    launches = _launches(options)
    async with AsyncExitStack() as stack:
        logs = Path(stack.enter_context(TemporaryDirectory(prefix="headrace-bench-")))
        servers = []
        for launch in launches:
            tell(f"starting {launch.name}")
            server = await stack.enter_async_context(_started(launch, options, model.vocab_size, logs))
            tell(f"{launch.name} answers after {server.started_in_s:.1f} s")
            servers.append(server)
        runs = await run_rounds(Course(servers, options.scenarios, options.rounds, seed, model, cores), tell)
        sides = [_side(launch, server) for launch, server in zip(launches, servers, strict=True)]
    report = Report(started_at, options.model_dir.name, cores, _processor(), seed, sides, runs)
    if options.json_path:
        save(report, options.json_path)
    if options.html_path:
        options.html_path.write_text(page(report), encoding="utf-8")
    return report


def _launches(options: BenchOptions) -> list[Launch]:
    """Ours first. The peers' code is imported only where one is asked for."""
    launches = [Launch("headrace", (), options.model_dir.name)]
    if options.peers:
        from bench.peers.install import launch_peer

        launches += [launch_peer(name, options.model_dir) for name in options.peers]
    return launches


@asynccontextmanager
async def _started(launch: Launch, options: BenchOptions, vocab_size: int, logs: Path) -> AsyncIterator[Server]:
    if launch.command:
        async with running(launch, vocab_size, logs / f"{launch.name}.log") as server:
            yield server
    elif options.base_url:
        yield Server(Target(launch.name, options.base_url, launch.model, options.api_key), 0, 0.0)
    else:
        async with running(own_stack(options.model_dir, logs / "run"), vocab_size, logs / "headrace.log") as server:
            yield server


def own_stack(model_dir: Path, run_dir: Path) -> Launch:
    """Ours as `make up` starts it, on another port and in a run directory of its own."""
    up = ("-m", "cli", "up", "--model", str(model_dir), "--port", "{port}", "--run-dir", str(run_dir))
    return Launch("headrace", (sys.executable, *up), model_dir.name, start_s=120)


def _side(launch: Launch, server: Server) -> Side:
    command: Sequence[str] = [*(f"{k}={v}" for k, v in launch.environ.items()), *launch.command] or ["headrace up"]
    return Side(launch.name, list(command), server.started_in_s, round(server.memory_bytes() / 1e6))


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
