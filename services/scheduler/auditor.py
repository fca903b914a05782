"""Has the state looked over when nothing has run or waited for a while; logs what was wrong in any audit."""

import asyncio
from collections.abc import Callable, Sequence

from libs.contracts.messages import Alive
from libs.runtime.logs import get_logger
from services.scheduler.choice import Noted
from services.scheduler.events import AuditDue, Audited, Command, Event
from services.scheduler.state import State

IDLE_S = 5.0  # an audit takes a millisecond or two per thousand blocks, in which nothing else is decided

log = get_logger("scheduler")


class Auditor:
    """`on_turn` is one of the Loop's. One audit follows each time of work; a cell without any has no timer."""

    def __init__(self, state: State, post: Callable[[Event], None]) -> None:
        self._state, self._post = state, post
        self._alarm: asyncio.TimerHandle | None = None

    def on_turn(
        self, now_s: float, events: Sequence[Event], commands: Sequence[Command], journal: Sequence[Noted]
    ) -> None:
        if self._state.choices:
            self.close()
        elif self._alarm is None and any(not isinstance(event, Alive | AuditDue) for event in events):
            self._alarm = asyncio.get_running_loop().call_later(IDLE_S, self._due)

    def close(self) -> None:
        """No audit is due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def told(self, command: Audited) -> None:
        """Each problem is a bug of this service: a line with its facts."""
        for problem in command.problems:
            log.error("audit_violation", problem=problem, term=self._state.term)
        log.debug("audited", problems=len(command.problems), blocks=self._state.memory.pool.total_blocks)

    def _due(self) -> None:
        self._alarm = None
        self._post(AuditDue())
