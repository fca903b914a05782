"""`headrace bench`: options into a bench, its report into a table."""

import asyncio
import signal
import sys
from pathlib import Path

from bench.command import BenchOptions, run_bench
from bench.compare import comparison_table
from bench.record import Report, load
from bench.scenarios import SCENARIOS, Scenario, named
from bench.table import report_table
from cli.models import cache_root, resolve_model
from libs.contracts.errors import ConfigError


def measure(options: BenchOptions) -> str:
    """Run it, telling each run on stderr as it ends; the table. Raises HeadraceError."""
    try:
        return report_table(asyncio.run(_until_stopped(options)))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _until_stopped(options: BenchOptions) -> Report:
    """A terminated bench still stops the servers that it has started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run_bench(options, _tell)


def compare_reports(first: Path, second: Path) -> str:
    return comparison_table(load(first), load(second))


def model_dir(model: str) -> Path:
    return resolve_model(model, cache_root(), lambda done, total: None)


def scenarios(names: str) -> tuple[Scenario, ...]:
    """Raises ConfigError for a name that no scenario has."""
    try:
        return named(names)
    except KeyError as error:
        known = ", ".join(scenario.name for scenario in SCENARIOS)
        raise ConfigError(f"no scenario {error}; there are {known}") from error


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
