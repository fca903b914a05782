"""Whether requests may come in: draining, the broker's connection, and a cell that serves the model."""

import asyncio
from collections.abc import Sequence

from libs.contracts.errors import Unavailable
from libs.contracts.messages import CellStatus
from libs.runtime.bus import Bus
from libs.runtime.cells import CellDirectory
from services.gateway.outbox import Outbox

CLOSING = "the server is shutting down"
NO_WORKER = "no worker serves the model yet"
PROBE_TIMEOUT_S = 0.5
PROBE_VALID_S = 0.5  # readiness is asked for without a key, so asking often must cost nothing


class Door:
    """Mutable: opens once, gives notice and closes once, and remembers the last probe."""

    def __init__(self, bus: Bus, cells: CellDirectory, outbox: Outbox, models: Sequence[str]) -> None:
        self._bus = bus
        self._cells = cells
        self._outbox = outbox
        self._models = models
        self._shut = "the server is starting"  # why nothing may come in, whatever the rest is like
        self._notice = ""  # why nothing should come in any more, though it still may
        self._probe: asyncio.Task[tuple[CellStatus, ...]] | None = None
        self._probed_s = float("-inf")

    def open(self) -> None:
        """Everything that a request needs in this process is up."""
        self._shut = ""

    def give_notice(self) -> None:
        """Not ready from now on, so that whoever chooses among gateways chooses another; what comes still gets in."""
        self._notice = CLOSING

    def close(self) -> None:
        """Let nothing in any more."""
        self._shut = CLOSING

    @property
    def is_shut(self) -> bool:
        return bool(self._shut)

    @property
    def obstacle(self) -> str:
        """Why a request cannot be served now, as far as this process knows; "" when nothing is known against it."""
        if shut := self._shut or self._notice:
            return shut
        if not self._bus.connected:
            return "the broker is not connected"
        if not any(map(self.serves, self._models)):
            return NO_WORKER
        return ""

    def serves(self, model: str) -> bool:
        """Whether a cell serves it now."""
        return bool(self._open_cells(model))

    def check(self, *models: str) -> None:
        """Raises Unavailable when a request to one of `models`, or of all, would only wait for what is not there.

        A broker that is away is most likely restarting: to wait for it is the outbox's part.
        """
        if self._shut:
            raise Unavailable(self._shut)
        if not any(map(self.serves, models or self._models)):
            raise Unavailable(NO_WORKER)

    async def ready(self) -> str:
        """`obstacle`, and beyond it whether a scheduler with a worker answers."""
        if obstacle := self.obstacle:
            return obstacle
        has_worker = any(status.workers for status in await self.cells())
        return "" if has_worker else "no scheduler with a worker answers"

    async def cells(self) -> tuple[CellStatus, ...]:
        """How the schedulers of the open cells that answer describe themselves, at most PROBE_VALID_S ago."""
        now_s = asyncio.get_running_loop().time()
        if self._probe is None or (self._probe.done() and now_s - self._probed_s > PROBE_VALID_S):
            self._probe = asyncio.create_task(self._ask_cells())
            self._probed_s = now_s
        return await asyncio.shield(self._probe)

    async def _ask_cells(self) -> tuple[CellStatus, ...]:
        open_cells = [cell for model in self._models for cell in self._open_cells(model)]
        answers = await asyncio.gather(*(self._outbox.status(cell, timeout_s=PROBE_TIMEOUT_S) for cell in open_cells))
        return tuple(status for status in answers if status is not None)

    def _open_cells(self, model: str) -> list[str]:
        return [record.cell for record in self._cells.get(model) if record.max_prompt_tokens]
