"""How busy the model's cells are, asked of their schedulers. Where there is one cell there is nothing to choose.

Only a prompt that comes alone waits for the answers: among many, each goes by those of the last quarter of a second,
and by what this tokenizer has sent since.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libs.contracts.messages import CellRecord
from libs.runtime.bus import Bus
from libs.runtime.status import cell_status
from services.tokenizer.choose import Load

FRESH_S = 0.25
KNOWN_S = 0.5  # what is older is not gone by: the prompt waits
ANSWER_S = 0.3


@dataclass(slots=True)
class _Answers:
    at_s: float
    by_cell: dict[str, Load]


class Loads:
    """Mutable: what the cells of one model said last."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._last = _Answers(float("-inf"), {})
        self._asking: asyncio.Task[None] | None = None

    async def of(self, cells: Sequence[CellRecord]) -> Mapping[str, Load]:
        """By cell, of those whose scheduler answers; empty where nobody is asked or nobody does."""
        if len(cells) < 2:
            return {}
        age_s = asyncio.get_running_loop().time() - self._last.at_s
        if age_s > FRESH_S and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask([cell.cell for cell in cells]))
        if age_s > KNOWN_S and self._asking is not None:
            await asyncio.shield(self._asking)
        return self._last.by_cell

    def sent(self, cell: str) -> None:
        """One more is on its way there."""
        load = self._last.by_cell.get(cell)
        if load is not None:
            self._last.by_cell[cell] = Load(load.waiting, load.running + 1)

    async def _ask(self, cells: Sequence[str]) -> None:
        answers = await asyncio.gather(*(cell_status(self._bus, cell, timeout_s=ANSWER_S) for cell in cells))
        by_cell = {each.cell: Load(each.waiting, each.running) for each in answers if each is not None and each.workers}
        self._last = _Answers(asyncio.get_running_loop().time(), by_cell)
