"""All records of a run, and those of one request out of them. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from libs.contracts.trace_records import (
    Arrived,
    Decided,
    Head,
    Joined,
    Left,
    Order,
    Record,
    Report,
    Served,
    Steps,
    Tokenized,
    Waited,
    WorkerLost,
)


class Step(NamedTuple):
    """One step of one worker: a trace of its own."""

    start_ns: int
    end_ns: int
    worker: str
    number: int
    request_ids: tuple[str, ...]
    tokens: tuple[int, ...]
    sampled: tuple[int, ...]

    @property
    def batch_tokens(self) -> int:
        return sum(self.tokens)

    def tokens_of(self, request_id: str) -> int:
        """Of the largest of its rows: each of its choices has one."""
        return max(self.tokens[row] for row in self._rows(request_id))

    def samples(self, request_id: str) -> bool:
        return any(self.sampled[row] for row in self._rows(request_id))

    def _rows(self, request_id: str) -> list[int]:
        return [row for row, name in enumerate(self.request_ids) if name == request_id]


class Stay(NamedTuple):
    """A request joined a worker."""

    at_ns: int
    worker: str
    cached_tokens: int


@dataclass(slots=True)
class Trace:
    """What is known of one request. Lists are in the order of time."""

    request_id: str
    served: Served | None = None  # None while it lives, or when its gateway was lost
    tokenized: list[Tokenized] = field(default_factory=list)
    arrived: list[Arrived] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    joined: list[Stay] = field(default_factory=list)
    waited: list[Waited] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


class Store:
    """All that the rings of one run hold. `unix_offset_ns` makes its times those since 1970."""

    def __init__(self, segments: Iterable[tuple[Head, Sequence[Record]]]) -> None:
        self.unix_offset_ns = 0
        self.dropped = 0
        self.steps: dict[str, list[Step]] = {}  # by worker, in the order of time
        self.decided: list[Decided] = []
        self.orders: list[Order] = []
        self.reports: list[Report] = []
        self.lost: list[WorkerLost] = []
        self.served: list[Served] = []
        self._traces: dict[str, Trace] = {}
        self._offsets: dict[str, int] = {}
        for head, records in segments:
            self._read(head, records)
        self._sort()

    def find(self, name: str) -> Trace | None:
        """By request id, by trace id, or by a beginning of a request id that only one has."""
        if name in self._traces:
            return self._traces[name]
        for served in self.served:
            if served.trace_id == name:
                return self._traces[served.request_id]
        matches = [trace for request_id, trace in self._traces.items() if name and request_id.startswith(name)]
        return matches[0] if len(matches) == 1 else None

    def step(self, worker: str, number: int) -> Step | None:
        """The last one of that number: a worker's next life counts anew."""
        return next((step for step in reversed(self.steps.get(worker, [])) if step.number == number), None)

    def steps_between(self, worker: str, start_ns: int, end_ns: int) -> list[Step]:
        """Steps of a worker that lie in an interval."""
        steps = self.steps.get(worker, [])
        first = bisect_left(steps, start_ns, key=lambda step: step.start_ns)
        return [step for step in steps[first : bisect_right(steps, end_ns, key=lambda step: step.start_ns)]]

    def traces(self) -> list[Trace]:
        return list(self._traces.values())

    def _read(self, head: Head, records: Sequence[Record]) -> None:
        """Processes of one host share a clock, so they share the first offset seen; another host's times are moved."""
        self.dropped = max(self.dropped, head.dropped)
        offset_ns = self._offsets.setdefault(head.boot, head.unix_offset_ns)
        self.unix_offset_ns = next(iter(self._offsets.values()))
        shift_ns = offset_ns - self.unix_offset_ns
        for record in records:
            self._add(head, _shifted(record, shift_ns) if shift_ns else record)

    def _add(self, head: Head, record: Record) -> None:
        match record:
            case Served():
                self.served.append(record)
                self._of(record.request_id).served = record
            case Tokenized():
                self._of(record.request_id).tokenized.append(record)
            case Arrived():
                self._of(record.request_id).arrived.append(record)
            case Decided():
                self.decided.append(record)
                self._of(record.request_id).decided.append(record)
            case Joined():
                self._of(record.request_id).joined.append(Stay(record.at_ns, head.instance, record.cached_tokens))
            case Waited():
                self._of(record.request_id).waited.append(record)
            case Steps():
                self._add_steps(head.instance, record)
            case _:
                self._add_decision(record)

    def _add_decision(self, record: Head | Order | Report | WorkerLost | Left) -> None:
        match record:
            case Order():
                self.orders.append(record)
                named = {*record.removed, *(name for name, _, _ in record.added)}
                named |= {name for name, _ in (*record.granted, *record.chunks)}
                for request_id in named:
                    self._of(request_id).orders.append(record)
            case Report():
                self.reports.append(record)
            case WorkerLost():
                self.lost.append(record)

    def _add_steps(self, worker: str, run: Steps) -> None:
        times = iter(run.times_ns)
        for number, (start_ns, end_ns) in enumerate(zip(times, times, strict=False), run.first):
            step = Step(start_ns, end_ns, worker, number, run.request_ids, run.tokens, run.sampled)
            self.steps.setdefault(worker, []).append(step)
            for request_id in dict.fromkeys(run.request_ids):
                self._of(request_id).steps.append(step)

    def _of(self, request_id: str) -> Trace:
        return self._traces.setdefault(request_id, Trace(request_id))

    def _sort(self) -> None:
        self._traces.pop("", None)
        for steps in self.steps.values():
            steps.sort()
        for records in (self.decided, self.orders, self.reports, self.lost):
            records.sort(key=lambda record: record.at_ns)
        for trace in self._traces.values():
            trace.steps.sort()
            trace.joined.sort()
            trace.arrived.sort(key=lambda record: record.at_ns)
            trace.decided.sort(key=lambda record: record.at_ns)
            trace.orders.sort(key=lambda record: record.at_ns)
            trace.waited.sort(key=lambda record: record.start_ns)
            trace.tokenized.sort(key=lambda record: record.pulled_ns)


def _shifted(record: Record, shift_ns: int) -> Record:
    """With all its times moved; a time that never was stays so."""
    changes: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name == "times_ns":
            changes[name] = [time_ns + shift_ns for time_ns in value]
        elif name.endswith("_ns") and value:
            changes[name] = value + shift_ns
    return msgspec.structs.replace(record, **changes)
