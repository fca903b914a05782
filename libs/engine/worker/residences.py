"""The spans of a worker: one for each stay of a sequence, from the version that adds it to its end or removal."""

from collections.abc import Iterable
from dataclasses import dataclass

from libs.contracts.errors import NumericalError
from libs.contracts.messages import Resident, RowResult
from libs.engine.worker.held import ERROR
from libs.engine.worker.residents import StepReport
from libs.runtime.tracing import Span, start_span, wall_ns

Key = tuple[str, int, int]


@dataclass(slots=True)
class Residence:
    span: Span
    tokens: int = 0
    steps: int = 0
    is_announced: bool = False  # a frame row carried the span's context


class Residences:
    def __init__(self, span_name: str) -> None:
        self._span_name = span_name
        self._open: dict[Key, Residence] = {}

    def begin(self, added: Iterable[Resident], at_ns: int) -> None:
        """`at_ns` is monotonic: the moment at which the version was taken."""
        for resident in added:
            span = start_span(self._span_name, parent=resident.traceparent, start_ns=wall_ns(at_ns))
            span.set(request_id=resident.request_id, cached_tokens=resident.cached_tokens)
            self._open[_key(resident)] = Residence(span)

    def note(self, report: StepReport) -> list[str]:
        """Count a step. Per row of the report: the span's context in the first row that a gateway sees, else ""."""
        return [
            self._note_row(resident, row, report.result.ended_ns)
            for resident, row in zip(report.residents, report.result.rows, strict=True)
        ]

    def end(self, removed: Iterable[Resident], at_ns: int) -> None:
        for resident in removed:
            self._close(_key(resident), at_ns)

    def _note_row(self, resident: Resident, row: RowResult, ended_ns: int) -> str:
        key = _key(resident)
        residence = self._open.get(key)
        if residence is None:
            return ""
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
            residence.span.set(tokens=residence.tokens, steps=residence.steps)
            residence.span.end(wall_ns(at_ns), error=error)


def _key(resident: Resident) -> Key:
    """Handles change with the term; what a resident stands for does not."""
    return resident.request_id, resident.choice, resident.epoch
