"""One child process: it logs to a file, dies with its parent, and its end is an event to wait for."""

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOG_TAIL_BYTES = 4096
PROJECT_ROOT = Path(__file__).parents[2]


class Child:
    """A started process. Watched through a pidfd, so a signal never reaches a stranger that got its pid."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self.exited = asyncio.Event()
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; −n when signal n ended it."""
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process is gone."""
        if not self.exited.is_set():
            signal.pidfd_send_signal(self._pidfd, number)

    async def wait(self) -> int:
        await self.exited.wait()
        return self._process.wait()

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self.exited.set()


def spawn(argv: Sequence[str], *, environ: Mapping[str, str], log_path: Path, pass_fds: Sequence[int] = ()) -> Child:
    """Start a process with exactly this environment, in a group of its own, output appended to the log.

    Call it from the main thread: the kernel ties the child's life to the thread that started it.
    Raises OSError when the program cannot be started.
    """
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            argv,
            env=dict(environ),
            cwd=PROJECT_ROOT,  # where `python -m services.<name>` finds its package, installed or not
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(pass_fds),
            process_group=0,
            preexec_fn=_die_with(os.getpid()),
        )
    return Child(process)


def log_tail(log_path: Path, lines: int) -> list[str]:
    """The last lines of a log, fewer when it is short, none when it is missing."""
    if not log_path.is_file():
        return []
    with log_path.open("rb") as log:
        log.seek(max(0, log_path.stat().st_size - LOG_TAIL_BYTES))
        text = log.read().decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()][-lines:]


def _die_with(parent_pid: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None)  # loaded before the fork, where locks are still whole

    def set_signal() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent died before the call above
            os.kill(os.getpid(), signal.SIGKILL)

    return set_signal
