"""`headrace profile`: what it prints and writes of what workers answered."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli import profile as command
from cli.profile import show_profile
from deploy.local import profile as asking
from deploy.local.run_dir import State
from libs.contracts.errors import Unavailable
from libs.contracts.messages import Lap, WorkerProfile

STATE = State(1, 1, "ready", "http://127.0.0.1:1/v1", "m", False, 8, 16, 1, "nats://127.0.0.1:1", "", ())
LAPS = (Lap("idle", 100_000_000), Lap("kernels;head", 300_000_000), Lap("kernels;qkv", 500_000_000))
BUSY = WorkerProfile("decode_worker-0", 1_000_000_000, 50, 400, 20_000_000, 1_700_000_000, (*LAPS, Lap("link", 10**8)))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[WorkerProfile]:
    """What the workers of a running stack answer."""
    given = [BUSY]

    async def ask(state: State, duration_s: float) -> list[WorkerProfile]:
        return given

    monkeypatch.setattr(command, "running", lambda run_dir: STATE)
    monkeypatch.setattr(asking, "ask_profiles", ask)
    return given


def test_the_table_tells_each_part_its_share_and_its_time_in_a_step(answers: list[WorkerProfile]) -> None:
    """The largest first, what it consists of below it."""
    lines = show_profile(None, 1.0, as_json=False, flame_path=None).splitlines()

    assert lines[0] == "decode_worker-0: 50 steps of 400 tokens in 1.00 s"
    assert [line.split()[:2] for line in lines[1:6]] == [
        ["kernels", "80.0%"],
        ["qkv", "50.0%"],
        ["head", "30.0%"],
        ["idle", "10.0%"],
        ["link", "10.0%"],
    ]
    assert "16.000 ms a step" in lines[1] and "1.70 s" in lines[6]


def test_a_worker_that_did_not_step_has_no_time_in_a_step(answers: list[WorkerProfile]) -> None:
    """Nothing is divided by its number."""
    answers[0] = WorkerProfile("decode_worker-0", 1_000_000_000, 0, 0, 0, 0, (Lap("idle", 1_000_000_000),))

    assert "a step" not in show_profile(None, 1.0, as_json=False, flame_path=None)


@pytest.mark.parametrize("name", ["flame.svg", "flame.folded"])
def test_a_flame_graph_is_written_in_the_format_of_its_name(
    answers: list[WorkerProfile], tmp_path: Path, name: str
) -> None:
    """An SVG that opens by itself, or lines for other tools."""
    path = tmp_path / name

    assert f"wrote {path}" in show_profile(None, 1.0, as_json=False, flame_path=path)

    text = path.read_text()
    if name.endswith(".svg"):
        assert ElementTree.fromstring(text).tag.endswith("svg")
    else:
        assert "workers;decode_worker-0;kernels;qkv 500000" in text.splitlines()


def test_a_stack_whose_workers_do_not_answer_is_no_empty_table(answers: list[WorkerProfile]) -> None:
    """It says what that means."""
    answers.clear()

    with pytest.raises(Unavailable, match="no worker answered"):
        show_profile(None, 1.0, as_json=False, flame_path=None)
