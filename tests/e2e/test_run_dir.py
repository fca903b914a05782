"""The run directory: one supervisor at a time, private files, and nothing kept of a run that was killed."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deploy.local.run_dir import RunDir, Running, State, is_alive, process
from libs.contracts.errors import ConfigError
from tests.fakes.run_state import run_state

pytestmark = pytest.mark.e2e


def state(run_dir: RunDir, pid: int, *children: int) -> State:
    workers = tuple(process(f"tokenizer-{n}", child) for n, child in enumerate(children))
    return run_state(pid=pid, born=process("supervisor", pid).born, children=workers)


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_two_supervisors_refuse_each_other(tmp_path: Path) -> None:
    """The second is told, and the first is not disturbed."""
    with RunDir(tmp_path).locked(), pytest.raises(ConfigError, match="already runs"), RunDir(tmp_path).locked():
        raise AssertionError("locked twice")
    with RunDir(tmp_path).locked():
        pass


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    """The directory is 0700 and state.json 0600, also where it existed before."""
    run_dir = RunDir(tmp_path / "run")
    run_dir.path.mkdir(mode=0o755)
    run_dir.create()
    run_dir.write_state(state(run_dir, 1))

    assert run_dir.path.stat().st_mode & 0o777 == 0o700
    assert run_dir.state.stat().st_mode & 0o777 == 0o600


def test_cleaning_ends_what_outlived_its_supervisor(tmp_path: Path) -> None:
    """A process that the dead supervisor recorded is killed; a later one with the same pid is not."""
    run_dir = RunDir(tmp_path)
    run_dir.create()
    orphan, stranger = sleeper(), sleeper()
    try:
        recorded = state(run_dir, 2**22, orphan.pid, stranger.pid)
        not_running = Running("gateway-0", 0, 0)
        children = (recorded.children[0], msgspec.structs.replace(recorded.children[1], born=1), not_running)
        run_dir.write_state(msgspec.structs.replace(recorded, children=children))
        run_dir.valkey_socket.touch()
        run_dir.nats_store.mkdir()

        run_dir.clean()

        assert not is_alive(recorded.children[0])
        assert is_alive(recorded.children[1])
        assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]
    finally:
        for started in (orphan, stranger):
            started.kill()
            started.wait()


def test_cleaning_leaves_other_files_alone(tmp_path: Path) -> None:
    """A run directory may be any directory: only our own names are deleted."""
    run_dir = RunDir(tmp_path)
    run_dir.create()
    theirs = (tmp_path / "thesis.txt", run_dir.trace_dir("gateway-0") / "thesis.txt")
    ours = run_dir.trace_dir("gateway-0") / "00000001.trace"
    ours.parent.mkdir(parents=True)
    for path in (*theirs, ours):
        path.write_text("mine")

    run_dir.clean()

    assert [path.read_text() for path in theirs] == ["mine", "mine"]
    assert not ours.exists()


def test_a_state_of_a_dead_supervisor_is_not_live(tmp_path: Path) -> None:
    """Other commands see no stack where its supervisor was killed, or where state.json is damaged."""
    run_dir = RunDir(tmp_path)
    run_dir.create()
    dead = sleeper()
    run_dir.write_state(state(run_dir, dead.pid))
    assert run_dir.live_state() is not None

    dead.kill()
    dead.wait()

    assert run_dir.read_state() is not None
    assert run_dir.live_state() is None
    run_dir.state.write_text("{")
    assert run_dir.read_state() is None


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    """The error says what to do, before anything is started."""
    with pytest.raises(ConfigError, match="--run-dir"):
        RunDir(tmp_path / ("d" * 120)).create()
