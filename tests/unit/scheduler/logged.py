"""A cell whose event log is kept, and a run of any length in which requests come, leave and lose their workers."""

from collections.abc import Iterable
from io import BytesIO
from random import Random
from typing import Any

from libs.contracts.messages import StepResult
from services.scheduler.choice import Phase
from services.scheduler.event_log import EventLog
from services.scheduler.events import Command, Event
from services.scheduler.plan import turn
from services.scheduler.state import DECODE, PREFILL, State
from tests.unit.scheduler.cell import Cell, params, prompt

REQUESTS_OPEN_MAX = 16
TURN_S = 0.02


def log_of(cell: Cell) -> BytesIO:
    """From now on, which must be its beginning, every turn of the cell is written to this file."""
    file = BytesIO()
    log = EventLog(cell.policy, cell.state.term, file)

    def decide(state: State, events: Iterable[Event], now_s: float) -> list[Command]:
        taken = tuple(events)
        log.append(now_s, taken)
        commands = turn(state, taken, now_s)
        log.decided(commands, state.take_journal())
        return commands

    cell.decide = decide
    return file


class LongRun:
    """`play` it; `log` is what the scheduler would have written."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.cell = Cell(
            blocks=20, host_blocks=12, role="auto", disaggregate_min_tokens=40, max_chunk_tokens=32, max_running=8
        )
        self.log = log_of(self.cell)
        self.steps = self.lost = self.cancelled = 0
        self._requests = 0
        for name, role in (("prefill-1", PREFILL), ("decode-1", DECODE), ("decode-2", DECODE)):
            self.cell.add_worker(name, role)

    def play(self, steps: int) -> None:
        """Until workers have reported so many steps."""
        while self.steps < steps:
            self._move(self._random.random())
            for worker in list(self.cell.workers.values()):
                self._step(worker.incarnation)
            self._settle_ended()
            self.cell.now_s += TURN_S
            self.cell.alive()

    def _move(self, drawn: float) -> None:
        cell, random = self.cell, self._random
        if drawn < 0.25 and len(cell.state.requests) < REQUESTS_OPEN_MAX:
            self._requests += 1
            ids = prompt(random.randint(5, 100), random.choice((100, 500)))
            sampling = params(random.randint(1, 120), temperature=1.0)
            standing: dict[str, Any] = {"tenant": random.choice("ab"), "priority": random.choice((0, 0, 0, -1))}
            if random.random() < 0.2:
                standing |= {"is_timed": True, "deadline_s": random.choice((1.0, 20.0))}
            cell.submit(f"r{self._requests}", ids, sampling, choices=random.choice((1, 1, 1, 2, 3)), **standing)
        elif drawn < 0.28 and cell.state.requests:
            self.cancelled += 1
            cell.cancel(random.choice(sorted(cell.state.requests)))
        elif drawn < 0.284:
            self.lost += 1
            cell.replace(cell.workers[random.choice(sorted(cell.workers))])

    def _step(self, incarnation: str) -> None:
        for message in self.cell.workers[incarnation].boundary():
            self.steps += isinstance(message, StepResult)
            self.cell.turn(message)

    def _settle_ended(self) -> None:
        for request_id, group in list(self.cell.state.requests.items()):
            if group.is_failed:
                self.cell.answer(request_id, live=True)
            elif all(choice.phase is Phase.ENDED for choice in group.choices):
                self.cell.deliver(request_id)
