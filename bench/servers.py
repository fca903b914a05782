"""Starts the servers under test, waits until they answer, and stops them; ours and the peers' alike."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.client import BenchError, Target, complete
from bench.scenarios import SMOKE, jobs

POLL_S: Final = 0.5
STOP_S: Final = 30.0
SHOWN_LOG_BYTES: Final = 1500
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Launch:
    """How one server is started. `{port}` in the command becomes a free port; `environ` adds to the caller's.

    With a `base_url` it runs already, and nothing is started. One that `stays` serves all rounds.
    """

    name: str
    command: tuple[str, ...]
    model: str
    environ: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)  # of every request's body
    start_s: float = 300.0  # the longest that it may take to answer
    stays: bool = False
    base_url: str = ""
    api_key: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """A running one. `pid` is 0 where somebody else started it."""

    target: Target
    pid: int
    started_in_s: float

    def cpu_s(self) -> float:
        """CPU seconds that its live processes have used."""
        return sum(_cpu_s(pid) for pid in _family(self.pid)) if self.pid else 0.0

    def memory_bytes(self) -> int:
        """Proportional share of memory of all its processes: pages that they share count once."""
        return sum(_memory_bytes(pid) for pid in _family(self.pid)) if self.pid else 0


@asynccontextmanager
async def running(launch: Launch, vocab_size: int, log_path: Path) -> AsyncIterator[Server]:
    """The server from its first right answer on; stopped at the end. Raises BenchError when it does not come up."""
    if launch.base_url:
        yield Server(Target(launch.name, launch.base_url, launch.model, launch.api_key), 0, 0.0)
        return
    port = free_port()
    command = [part.replace("{port}", str(port)) for part in launch.command]
    started_s = time.monotonic()
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **launch.environ},
            start_new_session=True,
        )
    target = Target(launch.name, f"http://127.0.0.1:{port}/v1", launch.model, extra=dict(launch.extra))
    try:
        await _answers(target, process, launch.start_s, vocab_size, log_path)
        yield Server(target, process.pid, round(time.monotonic() - started_s, 1))
    finally:
        _stop(process)


async def _answers(
    target: Target, process: "subprocess.Popen[bytes]", start_s: float, vocab_size: int, log_path: Path
) -> None:
    """A right answer is the only sign of readiness that all servers share."""
    (job,) = jobs(SMOKE, vocab_size, seed=0)
    deadline_s = time.monotonic() + start_s
    while True:
        try:
            await complete(target, job)
            return
        except BenchError as error:
            if process.poll() is None and time.monotonic() < deadline_s:
                await asyncio.sleep(POLL_S)
                continue
            ended = log_path.read_bytes()[-SHOWN_LOG_BYTES:].decode(errors="replace")
            raise BenchError(f"{target.name} did not come up: {error.message}\n{log_path} ends:\n{ended}") from error


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """As a user would, then by force; the whole family, since a killed parent leaves its children."""
    family = {pid: _born(pid) for pid in _family(process.pid)}
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    process.kill()
    process.wait()
    for pid, born in family.items():
        if born and _born(pid) == born:  # still the same process
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _family(root: int) -> list[int]:
    """`root`, its descendants, and what is left of its session: a child whose parent died is nobody's descendant."""
    children: dict[int, list[int]] = {}
    found = [root]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parent, session = int(fields[1]), int(fields[3])
            if session == root != int(entry.name):
                found.append(int(entry.name))
            else:
                children.setdefault(parent, []).append(int(entry.name))
    for pid in found:
        found += children.get(pid, [])
    return found


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; none when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _born(pid: int) -> int:
    """Start time in clock ticks: together with the pid it names one process for good. 0 for one that is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS if fields else 0.0


def _memory_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
