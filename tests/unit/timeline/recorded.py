"""A scheduler's test cell that writes down what its processes would: explain is tested on runs made to order.

Time is the workers': a turn happens when the step that caused it ends.
"""

from collections.abc import Iterable
from typing import Any

from libs.contracts.trace_records import Head, Record, Served
from libs.engine.worker.residences import Residences
from libs.engine.worker.step_values import StepReport, Taken
from libs.runtime.ring import Ring
from libs.timeline.trace import Store, Trace
from services.scheduler.decision_records import DecisionRecords
from services.scheduler.events import Command, Event
from services.scheduler.plan import turn
from services.scheduler.state import DECODE, State
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler import cell as cell_module
from tests.unit.scheduler.cell import START_S, Cell


class RecordedCell(Cell):
    """Use it inside the fixture `recording`, which has its turns written down."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        self.rings: dict[str, Ring] = {}
        self.served: dict[str, Served] = {}
        self.decisions = DecisionRecords(self.ring("scheduler"), self.state, to_ns)

    def ring(self, name: str) -> Ring:
        return self.rings.setdefault(name, Ring(lambda: None))

    def add_worker(self, name: str, role: str = DECODE, **changes: Any) -> FakeWorker:
        worker = super().add_worker(name, role, **changes)
        _record(worker, Residences(f"{role}_worker.{role}", self.ring(name)))
        return worker

    def submit(self, request_id: str, ids: Any, sampling: Any = None, **more: Any) -> None:
        self.served[request_id] = Served(request_id, "", "m", "text_completion", False, to_ns(self.now_s))
        super().submit(request_id, ids, sampling, **more)

    def submit_together(self, requests: dict[str, tuple[Any, Any]]) -> None:
        """All in one turn."""
        for request_id in requests:
            self.served[request_id] = Served(request_id, "", "m", "text_completion", False, to_ns(self.now_s))
        self.turn(*(self.arrival(request_id, ids, sampling) for request_id, (ids, sampling) in requests.items()))

    def step(self, worker: FakeWorker) -> bool:
        worker._now_ns = max(worker._now_ns, to_ns(self.now_s))
        sent = worker.boundary()
        self.now_s = max(self.now_s, START_S + worker._now_ns / 1e9)
        for gateway in tuple(self.state.gateways):
            self.alive(gateway)
        for message in sent:
            self.turn(message)
        return bool(sent)

    def finish(self, request_id: str) -> None:
        """The gateway has all of it."""
        served = self.served[request_id]
        log, choice = self.log(request_id), self.choice(request_id)
        served.last_row_ns = served.told_ns = served.ended_ns = to_ns(self.now_s)
        served.prompt_tokens, served.generated_tokens = choice.prompt_tokens, len(log)
        served.outcome = choice.end
        self.deliver(request_id)

    def store(self) -> Store:
        """All that was written down."""
        segments: list[tuple[Head, list[Record]]] = [
            (Head(name.split("-")[0], name, 1, "boot", 0, 0), ring.take()) for name, ring in self.rings.items()
        ]
        return Store([*segments, (Head("gateway", "gateway-1", 1, "boot", 0, 0), [*self.served.values()])])


def traced(store: Store, request_id: str) -> Trace:
    trace = store.find(request_id)
    assert trace is not None
    return trace


def to_ns(now_s: float) -> int:
    return round((now_s - START_S) * 1e9)


def record_turns(monkeypatch: Any) -> None:
    """Have every turn of a RecordedCell written down."""
    decisions: dict[int, DecisionRecords] = {}
    made = RecordedCell.__init__

    def making(self: RecordedCell, **policy: Any) -> None:
        made(self, **policy)
        decisions[id(self.state)] = self.decisions

    def recording(state: State, events: Iterable[Event], now_s: float) -> list[Command]:
        taken = tuple(events)
        commands = turn(state, taken, now_s)
        decisions[id(state)].on_turn(now_s, taken, commands, state.take_journal())
        return commands

    monkeypatch.setattr(RecordedCell, "__init__", making)
    monkeypatch.setattr(cell_module, "turn", recording)


def _record(worker: FakeWorker, stays: Residences) -> None:
    residents = worker.residents
    take_version, absorb = residents.take_version, residents.absorb

    def taking(now_ns: int) -> Any:
        taken = take_version(now_ns)
        if isinstance(taken, Taken):
            stays.begin(taken.added, taken.at_ns)
            stays.end(taken.removed, taken.at_ns)
        return taken

    def absorbing(*arguments: Any, **times: Any) -> StepReport:
        report = absorb(*arguments, **times)
        stays.note(report)
        return report

    setattr(residents, "take_version", taking)  # noqa: B010
    setattr(residents, "absorb", absorbing)  # noqa: B010
