"""`headrace bench`: options into a bench, its report into a table."""

import asyncio
import sys
from pathlib import Path

from bench.command import BenchOptions, run_bench
from bench.record import load
from bench.scenarios import SCENARIOS, Scenario, named
from bench.table import comparison_table, report_table
from cli.models import cache_root, resolve_model
from libs.contracts.errors import ConfigError


def measure(options: BenchOptions) -> str:
    """Run it, telling each run on stderr as it ends; the table. Raises HeadraceError."""
    return report_table(asyncio.run(run_bench(options, _tell)))


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
