"""Owns the State: takes in events, has the core decide, hands its commands to who carries them out. Never polls.

Everything runs in one task, so a decision sees a state that nobody else changes.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger
from services.scheduler.choice import Noted
from services.scheduler.event_log import EventLog
from services.scheduler.events import Command, Event
from services.scheduler.plan import turn
from services.scheduler.state import State
from services.scheduler.timeouts import next_expiry_s

FROZEN_S = 0.1  # a time that came longer ago than this was not missed for work
SHORTEST_S = 0.001  # of an alarm: clocks differ in their last bits, and an alarm that comes early must not spin
HEARING_S = 0.01  # after a time has come: what is in the sockets by then is read
THAW_S = 0.1  # the same after a freeze, for others may have been frozen as well

logger = get_logger("scheduler")

Carriers = Mapping[type, Callable[[Any], None]]  # command class → who carries it out, without waiting

OnTurn = Callable[[float, tuple[Event, ...], list[Command], list[Noted]], None]  # when, …, reasons that changed


class Clock:
    """Seconds since 1970 that never step: deadlines are wall time, decisions need time to go forward."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        return self._offset_s + time.monotonic()

    def monotonic_ns(self, now_s: float) -> int:
        """A time of this clock as one of the host's monotonic clock."""
        return int((now_s - self._offset_s) * 1e9)

    def set_back(self, seconds: float) -> None:
        """This process was frozen for so long: what others were to say meanwhile waits to be read."""
        self._offset_s -= seconds


class Loop:
    """Events may be posted before `run`; they wait for it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.on_turn: list[OnTurn] = []  # who writes down what is decided
        self._events: list[Event] = []
        self._wake = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._due_s = float("inf")  # when the alarm goes off
        self._turned_s = 0.0  # the time of the last turn

    def post(self, event: Event) -> None:
        """Have it taken in soon, in the order of posting."""
        self._events.append(event)
        self._wake.set()

    async def run(self, state: State, log: EventLog, carriers: Carriers, *, until: asyncio.Event) -> None:
        """Decide whenever something happened or a time has come, until the event is set."""
        stopping = asyncio.create_task(until.wait())
        stopping.add_done_callback(lambda _: self._wake.set())
        try:
            while not until.is_set():
                self._turn(state, log, carriers)
                self._set_alarm(state)
                await self._wake.wait()
                if self._late_s() >= 0:
                    await self._listen()
                self._wake.clear()
        finally:
            stopping.cancel()
            if self._alarm is not None:
                self._alarm.cancel()

    def _turn(self, state: State, log: EventLog, carriers: Carriers) -> None:
        events, self._events = tuple(self._events), []
        now_s = self._turned_s = self.clock.now_s()
        log.append(now_s, events)
        commands = turn(state, events, now_s)
        journal = state.take_journal()
        log.decided(commands, journal)
        for tell in self.on_turn:
            tell(now_s, events, commands, journal)
        if commands:
            failpoint("scheduler.decided")
        for command in commands:
            carriers[type(command)](command)
        if commands:
            failpoint("scheduler.carried")

    def _late_s(self) -> float:
        """How long ago the alarm should have gone off; negative before."""
        return self.clock.now_s() - self._due_s

    async def _listen(self) -> None:
        """A time has come: before anybody is taken for silent, read what they said.

        When it came long ago, nothing ran here, and that time does not count.
        """
        was_frozen = self._late_s() > FROZEN_S
        await asyncio.sleep(THAW_S if was_frozen else HEARING_S)
        if was_frozen:
            logger.warning("was_frozen", seconds=round(self._late_s(), 1))
            self.clock.set_back(self._late_s())

    def _set_alarm(self, state: State) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        expiry_s = next_expiry_s(state)
        self._due_s = float("inf") if expiry_s is None else max(expiry_s, self._turned_s)
        if expiry_s is not None:
            delay_s = max(SHORTEST_S, expiry_s - self.clock.now_s())
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
