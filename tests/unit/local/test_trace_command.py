"""`headrace trace` and `headrace explain` over a run directory."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from deploy.local.run_dir import RunDir
from libs.runtime.ring import open_ring
from tests.unit.timeline.test_leaves import PARTS, R

pytestmark = pytest.mark.usefixtures("written")


@pytest.fixture
async def written(tmp_path: Path) -> None:
    """The rings of one request."""
    for name, records in PARTS.items():
        async with open_ring(str(RunDir(tmp_path).trace_dir(f"{name}-0")), name, f"{name}-0") as ring:
            for record in records:
                ring.put(record)


def run(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments, "--run-dir", str(tmp_path)])
    return done.exit_code, done.output


def test_a_waterfall_has_a_line_for_each_phase(tmp_path: Path) -> None:
    """And the coverage below it."""
    code, output = run(tmp_path, "trace", R)

    assert code == 0
    assert "wait.no_blocks" in output and "decode.step x 2" in output and "decode_worker-0#4…5" in output
    assert "100.0% of end to end" in output


def test_the_json_of_a_trace_is_json(tmp_path: Path) -> None:
    """With its leaves, steps and decisions."""
    code, output = run(tmp_path, "trace", "last", "--json")

    shape = json.loads(output)

    assert code == 0
    assert shape["request_id"] == R and len(shape["steps"]) == 4 and len(shape["decisions"]) == 5


def test_a_perfetto_file_is_written(tmp_path: Path) -> None:
    """Where it was asked for."""
    code, output = run(tmp_path, "trace", R, "--perfetto", str(tmp_path / "trace.json"))

    assert code == 0 and "perfetto" in output
    assert json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]


def test_a_step_is_a_trace_of_its_own(tmp_path: Path) -> None:
    """With the requests in its batch."""
    code, output = run(tmp_path, "trace", "decode_worker-0#1")

    assert code == 0
    assert "33 tokens in 2 rows" in output and R in output and "other" in output


def test_an_explanation_is_sentences(tmp_path: Path) -> None:
    """From records alone."""
    code, output = run(tmp_path, "explain", R)

    assert code == 0
    assert output.startswith(f"{R}: 33 prompt tokens, 0 of them cached; 3 tokens in")


@pytest.mark.parametrize("name", ["nobody", "decode_worker-0#99", "decode_worker-0#x"])
def test_what_is_not_there_is_one_line_and_a_failure(tmp_path: Path, name: str) -> None:
    """Never a traceback."""
    code, output = run(tmp_path, "trace", name)

    assert code == 1
    assert "no record of" in output
