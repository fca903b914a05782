"""`headrace chaos`: what it understands, whom it strikes, and whom it refuses to."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.chaos import Fault, parse_fault, strike
from deploy.local.run_dir import RunDir, Running, process
from libs.contracts.errors import ConfigError, Unavailable
from tests.fakes.run_state import run_state


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield sleeper
    sleeper.kill()
    sleeper.wait()


def run_dir_with(folder: Path, *children: Running) -> RunDir:
    """A run directory whose supervisor is this process."""
    run_dir, own = RunDir(folder), process("supervisor", os.getpid())
    run_dir.create()
    run_dir.write_state(run_state(pid=own.pid, born=own.born, children=children))
    return run_dir


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("kill", "decode_worker"), Fault("kill", "decode_worker")),
        (("freeze", "scheduler", "5s"), Fault("freeze", "scheduler", 5.0)),
        (("freeze", "scheduler-0", "0.5"), Fault("freeze", "scheduler-0", 0.5)),
        (("freeze", "nats"), Fault("freeze", "nats", 2.0)),
    ],
)
def test_faults_are_said_in_plain_words(words: tuple[str, ...], fault: Fault) -> None:
    """An action, a service or a process, and how long."""
    assert parse_fault(words) == fault


@pytest.mark.parametrize("words", [(), ("kill",), ("drown", "nats"), ("freeze", "nats", "long"), ("kill", "a", "1s")])
def test_what_is_no_fault_is_refused(words: tuple[str, ...]) -> None:
    """The message tells what can be said."""
    with pytest.raises(ConfigError, match="freeze TARGET"):
        parse_fault(words)


@pytest.mark.parametrize("target", ["decode_worker", "decode_worker-1"])
def test_the_named_process_is_killed(tmp_path: Path, sleeper: "subprocess.Popen[bytes]", target: str) -> None:
    """By its own name, or as one of its service."""
    run_dir = run_dir_with(tmp_path, process("decode_worker-1", sleeper.pid))

    done = strike(run_dir, Fault("kill", target))

    assert sleeper.wait(timeout=5) == -9
    assert "decode_worker-1" in done


def test_a_frozen_process_thaws_in_the_end(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    """It is stopped for as long as was said, and no longer."""
    states = list[str]()

    def sleep(seconds: float) -> None:
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
        states.append(f"{state_of(sleeper.pid)} {seconds:g}")

    strike(run_dir_with(tmp_path, process("nats", sleeper.pid)), Fault("freeze", "nats", 0.5), sleep)

    assert states == ["T 0.5"]
    os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED)
    assert state_of(sleeper.pid) != "T"


def test_nobody_elses_stack_is_struck(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run directory that belongs to another user is refused."""
    run_dir = run_dir_with(tmp_path, process("nats", sleeper.pid))
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)

    with pytest.raises(ConfigError, match="not yours"):
        strike(run_dir, Fault("kill", "nats"))
    assert sleeper.poll() is None


def test_a_pid_that_is_another_process_by_now_is_left_alone(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    """The state's process is gone, and its pid names a stranger."""
    run_dir = run_dir_with(tmp_path, Running("nats", sleeper.pid, 1))

    with pytest.raises(ConfigError, match="no 'nats' runs"):
        strike(run_dir, Fault("kill", "nats"))
    assert sleeper.poll() is None


def test_nothing_runs(tmp_path: Path) -> None:
    """An empty directory is told from a strange one."""
    with pytest.raises(Unavailable, match="nothing runs"):
        strike(RunDir(tmp_path), Fault("kill", "nats"))
