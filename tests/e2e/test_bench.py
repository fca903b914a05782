"""`headrace bench` against a running stack: what it prints, the file that it writes, and the page."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.record import load
from tests.e2e.conftest import Stack

pytestmark = pytest.mark.e2e


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "cli", "bench", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(400)  # a batch and two streams, on cores that others may use
def test_a_bench_of_a_running_stack_leaves_a_table_a_file_and_a_page(hybrid: Stack, tmp_path: Path) -> None:
    """Two rounds of the smallest scenario; the file compares with itself as equal."""
    written, shown = tmp_path / "bench.json", tmp_path / "bench.html"

    done = bench(
        *("--base-url", hybrid.base_url, "--scenario", "smoke", "--rounds", "2"),
        *("--json", str(written), "--html", str(shown)),
    )

    assert done.returncode == 0, done.stderr
    assert "time to first token" in done.stdout
    report = load(written)
    assert [(run.scenario, run.side, run.round) for run in report.runs] == [
        ("smoke", "headrace", 0),
        ("smoke", "headrace", 1),
    ]
    assert all(run.figures["tok_s"] > 0 and 0 < run.probe.read_gb_s < 1000 for run in report.runs)
    assert shown.read_text(encoding="utf-8").count("<svg") == 4
    compared = bench("--compare", str(written), str(written))
    assert {line.split()[-1] for line in compared.stdout.splitlines()[1:]} == {"1.00"}


def test_a_wrong_scenario_or_peer_is_one_line(tmp_path: Path) -> None:
    """Exit code 2 and what there is instead, before anything is started."""
    wrong = bench("--scenario", "S9")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no scenario 'S9'; there are S1, S2" in wrong.stderr

    unknown = bench("--peers", "nobody")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "no peer 'nobody'; there are llama.cpp, vllm" in unknown.stderr
