"""Failpoints: off by default, armed by name, acting at the pass they were asked to, and once."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from libs.contracts.errors import ConfigError
from libs.runtime.failpoints import UNREADABLE, Armory, PlantedFault, parse

POINT, OTHER = "worker.frame.before", "worker.frame.after"
PASS_TWICE = """
import sys
from libs.runtime.failpoints import arm, failpoint
arm(sys.argv[1])
for passed in range(2):
    failpoint("worker.frame.before")
    print(passed, flush=True)
"""


def armory(specification: str, file: str = "") -> Armory:
    armed = Armory()
    armed.arm(specification, file)
    return armed


def passes(specification: str) -> "subprocess.CompletedProcess[str]":
    """What became of a process that comes by twice."""
    return subprocess.run(
        [sys.executable, "-c", PASS_TWICE, specification], capture_output=True, text=True, check=False
    )


def test_nothing_is_armed_by_default() -> None:
    """Without a setting a point is one look at one attribute."""
    assert not armory("").is_armed


def test_it_acts_at_the_pass_it_was_asked_to_and_once() -> None:
    """@2 lets the first pass by, and the third."""
    armed = armory(f"{POINT}=raise@2")

    armed.hit(POINT)
    armed.hit(OTHER)
    with pytest.raises(PlantedFault):
        armed.hit(POINT)
    armed.hit(POINT)


def test_corrupt_bytes_cannot_be_read() -> None:
    """They are as long as before, and no message."""
    assert armory(f"{POINT}=corrupt").hit(POINT, b"abc") == UNREADABLE * 3


def test_delay_holds_up() -> None:
    """The thread stands still for as long as was said."""
    started_s = time.monotonic()

    armory(f"{POINT}=delay:0.02").hit(POINT)

    assert time.monotonic() - started_s >= 0.02


@pytest.mark.parametrize(("action", "code"), [("kill", -9), ("exit:3", 3), ("exit", 1)])
def test_a_process_ends_at_the_point(action: str, code: int) -> None:
    """It ends at its second pass, and says nothing more."""
    done = passes(f"{POINT}={action}@2")

    assert (done.returncode, done.stdout) == (code, "0\n")


def test_a_paused_process_thaws_by_itself() -> None:
    """It is stopped for the given time, then goes on where it was."""
    started_s = time.monotonic()

    done = passes(f"{POINT}=pause:0.3")

    assert (done.returncode, done.stdout) == (0, "0\n1\n"), done.stderr
    assert time.monotonic() - started_s >= 0.3


@pytest.mark.parametrize("who", ["pid", "worker-7"])
def test_a_file_arms_this_process_alone(tmp_path: Path, who: str) -> None:
    """Lines for other processes are not ours, and a changed file is read again."""
    who = str(os.getpid()) if who == "pid" else who
    file = tmp_path / "failpoints"
    armed = Armory()
    armed.arm("", str(file), "worker-7")
    armed.hit(POINT)

    file.write_text(f"{os.getpid() + 1} {OTHER}=raise\n{who} {POINT}=raise\n")

    armed.hit(OTHER)
    with pytest.raises(PlantedFault):
        armed.hit(POINT)


@pytest.mark.parametrize("specification", ["nowhere=kill", f"{POINT}=explode", f"{POINT}=kill@x", f"{POINT}=delay:x"])
def test_what_means_nothing_is_refused(specification: str) -> None:
    """A misspelt fault must not become a test that tests nothing."""
    with pytest.raises(ConfigError):
        parse(specification)
