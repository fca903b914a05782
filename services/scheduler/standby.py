"""Which of several schedulers leads the cell: one that is gone or silent is followed by one that stands by.

Nobody decides that a leader is dead: a higher term is claimed by compare-and-set, and everybody obeys that. A leader
that was only frozen finds it in the directory when it thaws, and ends.
"""

import asyncio
from typing import NoReturn

from libs.contracts.errors import Fenced, MalformedMessage, Unavailable
from libs.runtime.bus import Bus, NoResponder
from libs.runtime.cells import CellDirectory
from libs.runtime.logs import get_logger
from libs.runtime.status import ask_cell

PROBE_S = 0.25
GONE_S = 0.3  # nobody listens any more: also for as long as a leader takes to come back to a broker
SILENCE_S = 1.0

log = get_logger("scheduler")


class Standby:
    """Watches one cell from outside. `is_standing_by`: another leads, and this one would follow."""

    def __init__(self, bus: Bus, directory: CellDirectory, model: str, cell: str) -> None:
        self._bus, self._directory, self._model, self._cell = bus, directory, model, cell
        self.is_standing_by = False

    @property
    def term(self) -> int:
        """The highest that is known; 0 before the first."""
        return max((record.term for record in self._directory.get(self._model) if record.cell == self._cell), default=0)

    async def wait_for_vacancy(self) -> int:
        """Return the term of the leader that is gone or silent; at once where nobody listens from the start."""
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        while True:
            term = self.term
            patience_s = await self._probe()
            now_s = loop.time()
            if patience_s is None or not self._bus.connected:
                heard_s = now_s
            elif now_s - heard_s >= patience_s or (patience_s == GONE_S and not self.is_standing_by):
                log.info("leader_gone", cell=self._cell, term=term)
                return term
            await asyncio.sleep(PROBE_S if patience_s is None else PROBE_S / 2)

    def look(self) -> None:
        """Somebody knows of a higher term: read the directory again, if that was missed."""
        self._directory.refresh_soon()

    async def follow(self, term: int) -> NoReturn:
        """Raise Fenced as soon as another leads in a higher term."""
        while True:
            changed = self._directory.changed
            if self.term > term:
                raise Fenced(f"term {self.term} leads cell {self._cell}")
            await changed.wait()

    async def _probe(self) -> float | None:
        """None when the leader has answered; else how long to bear with what was seen instead."""
        try:
            await ask_cell(self._bus, self._cell, timeout_s=PROBE_S)
        except NoResponder:
            return GONE_S
        except (Unavailable, MalformedMessage):
            return SILENCE_S
        if not self.is_standing_by:
            log.info("standing_by", cell=self._cell, term=self.term)
        self.is_standing_by = True
        return None
