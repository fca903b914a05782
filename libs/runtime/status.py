"""Tells whether a service can serve: whoever asks on the bus, and in a file whoever looks after its container."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from libs.contracts import codec, flow
from libs.contracts.errors import MalformedMessage, Unavailable
from libs.contracts.messages import CellStatus, ServiceStatus, StatusQuery
from libs.runtime.bus import Bus, Subscription

BEAT_S: Final = 1.0
READY: Final = "ready"


async def serve_status(bus: Bus, status: Callable[[], ServiceStatus], health_file: str = "") -> Subscription:
    """Answer each question on the status subject with the status of that moment; `health_file` as in `beat`."""

    async def answer(payload: bytes, traceparent: str) -> bytes:
        return codec.encode(status())

    if health_file:
        beat(Path(health_file), lambda: describe(status()))
    return await bus.serve(flow.STATUS_SUBJECT, answer)


async def ask_cell(bus: Bus, cell: str, *, timeout_s: float) -> CellStatus:
    """How a cell's scheduler describes itself. Raises Unavailable (NoResponder where nobody is), MalformedMessage."""
    query = codec.encode_in("ControlMessage", StatusQuery())
    return codec.decode(CellStatus, await bus.request(flow.control_subject(cell), query, timeout_s=timeout_s))


async def cell_status(bus: Bus, cell: str, *, timeout_s: float) -> CellStatus | None:
    """The same, or None where it does not answer in time."""
    try:
        return await ask_cell(bus, cell, timeout_s=timeout_s)
    except (Unavailable, MalformedMessage):
        return None


def describe(status: ServiceStatus) -> str:
    """ "ready", or why not."""
    return READY if status.ready else status.detail or "not ready"


def beat(path: Path, say: Callable[[], str]) -> None:
    """Write what `say` returns into the file now and every second, as long as the event loop runs.

    A process that stands still or hangs leaves an old file, so one look tells health (deploy/images/health.py).
    """
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(say(), encoding="utf-8")
    scratch.replace(path)  # a reader sees a whole word
    asyncio.get_running_loop().call_later(BEAT_S, beat, path, say)
