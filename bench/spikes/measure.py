"""What every trial needs: quantiles, CPU seconds of a process, busy neighbours and free ports."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

IDLE_WINDOW_S = 20.0


def quantiles_ms(samples_s: Sequence[float]) -> str:
    """Format p50, p99 and the maximum of durations in seconds as milliseconds."""
    ranked = sorted(samples_s)
    p50_s, p99_s = ranked[len(ranked) // 2], ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)]
    return f"p50 {p50_s * 1e3:.2f} ms, p99 {p99_s * 1e3:.2f} ms, max {ranked[-1] * 1e3:.2f} ms (n={len(ranked)})"


def cpu_s(pid: int | None = None) -> float:
    """User plus system CPU seconds that the process (this one if None) has used, in steps of 10 ms (proc(5), stat)."""
    after_name = Path(f"/proc/{pid or 'self'}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


async def idle_percent(pid: int | None = None, window_s: float = IDLE_WINDOW_S) -> float:
    """CPU use of the process over the window, in percent of one core."""
    before_s = cpu_s(pid)
    await asyncio.sleep(window_s)
    return (cpu_s(pid) - before_s) / window_s * 100


def free_port() -> int:
    """A loopback TCP port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Run count processes that compute without pause at normal priority."""
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
