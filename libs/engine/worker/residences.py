"""The spans of a worker: one for each stay of a sequence, from the version that adds it to its end or removal.

The same goes to the local trace ring, with every step.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from libs.contracts.errors import NumericalError
from libs.contracts.messages import Resident, RowResult
from libs.contracts.row_words import ERROR
from libs.contracts.trace_records import Joined, Left
from libs.engine.worker.step_records import StepRecords
from libs.engine.worker.step_spans import Key, StepSpans, key_of
from libs.engine.worker.step_values import StepReport
from libs.runtime.ring import OFF, Ring
from libs.runtime.tracing import Span, start_span, wall_ns


@dataclass(slots=True)
class Residence:
    span: Span
    sequence: int
    cursor: int
    tokens: int = 0
    steps: int = 0
    is_announced: bool = False  # a frame row carried the span's context


class Residences:
    def __init__(self, span_name: str, ring: Ring = OFF) -> None:
        self._span_name, self._ring = span_name, ring
        self._steps, self._spans = StepRecords(ring), StepSpans()
        self._open: dict[Key, Residence] = {}

    def begin(self, added: Iterable[Resident], at_ns: int) -> None:
        """`at_ns` is monotonic: the moment at which the version was taken."""
        for resident in added:
            span = start_span(self._span_name, parent=resident.traceparent, start_ns=wall_ns(at_ns))
            span.set(request_id=resident.request_id, cached_tokens=resident.cached_tokens)
            self._open[key_of(resident)] = Residence(span, resident.sequence, resident.cursor)
            self._steps.joined(resident)
            self._spans.joined(resident, span.traceparent)
            self._ring.put(Joined(resident.request_id, resident.epoch, at_ns, resident.cached_tokens))

    def note(self, report: StepReport) -> list[str]:
        """Count a step. Per row of the report: the span's context in the first row that a gateway sees, else ""."""
        if self._ring.is_on or self._spans.is_on:
            committed = self._committed(report)
            self._spans.note(report, committed)
            if self._ring.is_on:
                self._steps.note(report, committed)
        return [
            self._note_row(resident, row, report.result.ended_ns)
            for resident, row in zip(report.residents, report.result.rows, strict=True)
        ]

    def end(self, removed: Iterable[Resident], at_ns: int) -> None:
        for resident in removed:
            self._close(key_of(resident), at_ns)

    def _committed(self, report: StepReport) -> tuple[int, ...]:
        """Tokens that each row of the report wrote. What was found at the step's begin, this worker did not write."""
        if report.result.batch_tokens == len(report.residents):
            return (1,) * len(report.residents)
        for found in report.result.found:
            for resident in report.residents:
                if resident.sequence == found.sequence and (stay := self._open.get(key_of(resident))) is not None:
                    stay.cursor = found.cursor
        stays = (self._open.get(key_of(resident)) for resident in report.residents)
        return tuple(
            0 if stay is None else row.cursor - stay.cursor for stay, row in zip(stays, report.result.rows, strict=True)
        )

    def _note_row(self, resident: Resident, row: RowResult, ended_ns: int) -> str:
        key = key_of(resident)
        residence = self._open.get(key)
        if residence is None:
            return ""
        residence.cursor = row.cursor
        residence.steps += 1
        residence.tokens += len(row.ids)
        traceparent = ""
        if not residence.is_announced and (row.ids or row.end):
            residence.is_announced = True
            traceparent = residence.span.traceparent
        if row.end or row.at_until:
            self._close(key, ended_ns, error=NumericalError.code if row.end == ERROR else "")
        return traceparent

    def _close(self, key: Key, at_ns: int, error: str = "") -> None:
        residence = self._open.pop(key, None)
        if residence is not None:
            self._steps.left(residence.sequence)
            self._spans.left(key)
            self._ring.put(Left(key[0], key[2], at_ns, residence.tokens, residence.steps))
            residence.span.set(tokens=residence.tokens, steps=residence.steps)
            residence.span.end(wall_ns(at_ns), error=error)
