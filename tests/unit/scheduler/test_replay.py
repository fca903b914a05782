"""The core is a pure function of its event log: the same code decides a logged run again, to the last byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.replay import Differs, replay_files
from libs.contracts.errors import ConfigError
from services.scheduler import victim
from services.scheduler.choice import Choice
from services.scheduler.event_log import EventLog, log_path, open_log
from services.scheduler.order import rank
from services.scheduler.replay import Replayed, replay
from services.scheduler.state import DECODE, PREFILL, State
from services.scheduler.swap_cost import RECOMPUTE
from tests.unit.scheduler.cell import Cell, params, prompt
from tests.unit.scheduler.logged import LongRun, log_of

STEPS = 2_000
LONG_STEPS = 100_000


def a_run(cell: Cell) -> bytes:
    """Prompts that share, one that is cancelled, a pool that runs short, a worker that dies; its log."""
    file = log_of(cell)
    cell.add_worker("prefill-1", PREFILL)
    lost = cell.add_worker("decode-1", DECODE)
    for index in range(6):
        cell.submit(f"r{index}", prompt(20 + 13 * index, 100 + 50 * (index % 3)), params(30))
    cell.run(lambda: cell.choice("r1").generated == 4)
    cell.cancel("r0")
    cell.die(lost)
    cell.add_worker("decode-2", DECODE)
    cell.run()
    return file.getvalue()


def again(log: bytes) -> Replayed:
    return replay(log.splitlines(keepends=True))


@pytest.fixture
def log() -> bytes:
    return a_run(Cell(blocks=14, role="disaggregated", max_chunk_tokens=32, preemption=RECOMPUTE))


def test_a_logged_run_is_decided_again(log: bytes) -> None:
    """From the file alone."""
    done = again(log)

    assert done.difference is None
    assert done.steps > 20 and done.decisions > 20 and done.turns > done.decisions


def _replays(steps: int, seed: int) -> None:
    run = LongRun(seed)
    run.play(steps)
    done = again(run.log.getvalue())
    assert done.difference is None and done.steps >= steps
    counts = run.cell.state.counts
    assert run.cancelled and run.lost and counts["preempted_swap"] and counts["moved_sequences"], counts


def test_thousands_of_steps_are_decided_again() -> None:
    """With cancels, preemptions and lost workers in any order."""
    _replays(STEPS, seed=1)


@pytest.mark.whole
def test_a_hundred_thousand_steps_are_decided_again() -> None:
    """The same for longer than any queue, window or counter of the core is wide."""
    _replays(LONG_STEPS, seed=2)


def test_another_process_decides_the_same(log: bytes, tmp_path: Path) -> None:
    """Nothing hangs on the order of a set, which another process hashes otherwise."""
    path = tmp_path / "events.1.jsonl"
    path.write_bytes(log)

    done = subprocess.run(
        [sys.executable, "-m", "cli", "replay", str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "all the same" in done.stdout


def test_a_changed_policy_is_named_by_its_first_decision(
    log: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turn, time, and both decisions in words: here the oldest gives way where the youngest did."""

    def oldest(state: State) -> Choice | None:
        return min(state.running.values(), key=rank) if len(state.running) > 1 else None

    path = tmp_path / "events.1.jsonl"
    path.write_bytes(log)
    monkeypatch.setattr(victim, "youngest", oldest)

    with pytest.raises(Differs) as raised:
        replay_files([path])

    told = raised.value.message
    difference = again(log).difference
    assert difference is not None
    assert f"turn {difference.turn} at {difference.now_s:.6f} s" in told
    then, now = told.partition("  now:")[0], told.partition("  now:")[2]
    assert "preempted_recompute" in then and "preempted_recompute" in now and then != now


def test_a_decision_that_raises_is_a_difference(log: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed policy may break the state rather than decide something else."""

    def broken(state: State) -> Choice | None:
        raise KeyError("no such choice")

    monkeypatch.setattr(victim, "youngest", broken)

    difference = again(log).difference

    assert difference is not None and difference.again == ("raises KeyError('no such choice')",)


def test_a_log_that_was_cut_off_is_compared_as_far_as_it_goes(log: bytes) -> None:
    """Its writer was killed: in the middle of a line, or between a turn and what was decided in it."""
    lines = log.splitlines(keepends=True)
    turns = [number for number, line in enumerate(lines) if b'"events"' in line]
    ends = {len(b"".join(lines[: turn + 1])) for turn in turns[-40:]} | {len(log) - 3}

    assert all(again(log[:end]).difference is None for end in ends)


@pytest.mark.parametrize("broken", [b"", b"not a log\n", b'{"policy": {}}\n'])
def test_what_is_no_event_log_is_refused(broken: bytes, tmp_path: Path) -> None:
    """One clear error with the file's name."""
    path = tmp_path / "events.1.jsonl"
    path.write_bytes(broken)

    with pytest.raises(ConfigError, match=r"events\.1\.jsonl: this is no event log"):
        replay_files([path])


def test_a_torn_line_within_a_log_is_refused(log: bytes) -> None:
    """A turn that is missing makes everything after it meaningless."""
    lines = log.splitlines(keepends=True)
    lines[5] = lines[5][:20] + b"\n"

    with pytest.raises(ConfigError, match="cannot be read"):
        replay(lines)


def test_each_term_has_a_file_of_its_own(tmp_path: Path) -> None:
    """A successor on the same machine writes over nothing."""
    path = str(tmp_path / "events.jsonl")
    for term in (1, 2):
        with open_log(Cell().policy, term, path) as log:
            log.append(1.0, ())

    assert [log_path(path, term).name for term in (1, 2)] == ["events.1.jsonl", "events.2.jsonl"]
    assert sorted(found.name for found in tmp_path.iterdir()) == ["events.1.jsonl", "events.2.jsonl"]


def test_a_full_disk_ends_the_log_and_nothing_else(tmp_path: Path) -> None:
    """Decisions go on; what is in memory goes on."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        log = EventLog(Cell().policy, 1, full)
        log.append(1.0, ())
        log.decided([], [])

    assert log.last[-1].now_s == 1.0


def test_memory_keeps_the_newest_turns_only() -> None:
    """A log without a file must not grow for ever."""
    log = EventLog(Cell().policy, 1)
    for second in range(5000):
        log.append(float(second), ())
    assert len(log.last) < 5000 and log.last[-1].now_s == 4999.0
