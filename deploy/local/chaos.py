"""Strikes a running stack on its owner's word: kills a process of it, or freezes one for a while.

Nothing is repaired here: the supervisor starts again what died, and the rest is what the protocol promises.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from deploy.local.run_dir import RunDir, Running, State, is_alive
from libs.contracts.errors import ConfigError, Unavailable

KILL: Final = "kill"
FREEZE: Final = "freeze"
FREEZE_S: Final = 2.0
USAGE: Final = (
    "kill TARGET, or freeze TARGET [SECONDS]; a target is a service, or one of its processes: decode_worker-1"
)
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)s?")


@dataclass(frozen=True, slots=True)
class Fault:
    action: str
    target: str  # a service, or the name of one process
    seconds: float = 0.0


def parse_fault(words: Sequence[str]) -> Fault:
    """`kill decode_worker`, `freeze scheduler 5s`. Raises ConfigError."""
    match list(words):
        case [action, target] if action == KILL:
            return Fault(KILL, target)
        case [action, target] if action == FREEZE:
            return Fault(FREEZE, target, FREEZE_S)
        case [action, target, text] if action == FREEZE and (duration := DURATION.fullmatch(text)):
            return Fault(FREEZE, target, float(duration[1]))
    raise ConfigError(f"chaos takes {USAGE}")


def strike(run_dir: RunDir, fault: Fault, sleep: Callable[[float], object] = time.sleep) -> str:
    """Do it; what was done, in one line.

    Raises ConfigError for a stack of somebody else and for a target that is not there, Unavailable when nothing runs.
    """
    struck = _target(_own_state(run_dir), fault.target)
    with _held(struck) as pidfd:
        if fault.action == KILL:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            return f"killed {struck.name}, pid {struck.pid}"
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        try:
            sleep(fault.seconds)
        finally:
            with suppress(ProcessLookupError):  # ended meanwhile: a worker that stands still is
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        return f"froze {struck.name}, pid {struck.pid}, for {fault.seconds:g} s"


def _own_state(run_dir: RunDir) -> State:
    if run_dir.path.exists() and run_dir.path.stat().st_uid != os.getuid():
        raise ConfigError(f"{run_dir.path} is not yours: chaos strikes nobody else's stack")
    if state := run_dir.live_state():
        return state
    raise Unavailable(f"nothing runs in {run_dir.path}")


def _target(state: State, name: str) -> Running:
    there = [child for child in (state.supervisor, *state.children) if is_alive(child)]
    for child in there:
        if name in (child.name, child.name.rpartition("-")[0]):
            return child
    raise ConfigError(f"no {name!r} runs; there are {', '.join(child.name for child in there)}")


@contextmanager
def _held(running: Running) -> Iterator[int]:
    """A descriptor of exactly this process, whatever becomes of its pid."""
    pidfd = os.pidfd_open(running.pid)
    try:
        if not is_alive(running):
            raise Unavailable(f"{running.name} has just ended")
        yield pidfd
    finally:
        os.close(pidfd)
