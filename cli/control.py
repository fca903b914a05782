"""Talks to a stack that runs already: its status, and its end."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

import msgspec

from cli.output import status_table
from deploy.local.run_dir import RunDir, State, is_alive, wait_readable
from libs.contracts.errors import Unavailable

STOP_TIMEOUT_S: Final = 8.0  # the supervisor itself takes at most 5


def default_run_dir() -> Path:
    return Path.home() / ".local" / "state" / "headrace"


def chosen_run_dir(run_dir: Path | None) -> RunDir:
    return RunDir((run_dir or default_run_dir()).expanduser().absolute())


def stack_status(run_dir: Path | None, *, as_json: bool, audit: bool) -> str:
    """The status as text, with `audit` what is wrong in it. Raises Unavailable when nothing runs."""
    from deploy.local.status import ask_status

    status = asyncio.run(ask_status(running(chosen_run_dir(run_dir)), audit=audit))
    return msgspec.json.encode(status).decode() if as_json else status_table(status)


def stop_stack(run_dir: Path | None) -> str:
    """End the stack and wait until it is gone; nothing happens where none runs. Returns what was done."""
    chosen = chosen_run_dir(run_dir)
    state = chosen.live_state()
    if state is None:
        return f"nothing runs in {chosen.path}"
    pidfd = os.pidfd_open(state.supervisor.pid)
    try:
        if is_alive(state.supervisor):  # and so the descriptor is this process's, not a later one's with its pid
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if not wait_readable(pidfd, STOP_TIMEOUT_S):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)  # its children go with it
                wait_readable(pidfd, STOP_TIMEOUT_S)
    finally:
        os.close(pidfd)
    return f"stopped {state.model} at {state.base_url}"


def running(run_dir: RunDir) -> State:
    """Of the stack that runs there. Raises Unavailable when none does."""
    if state := run_dir.live_state():
        return state
    raise Unavailable(f"nothing runs in {run_dir.path}; `headrace up` starts a stack")
