"""A worker's steps as spans: each is a trace of its own, linked to the stays in its batch, and they to it.

Only steps that some exported request was in are told; nothing happens while there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.contracts import conventions as names
from libs.contracts.messages import Resident
from libs.engine.worker.step_values import StepReport
from libs.runtime.tracing import is_exported, leaf

MOST_STAYS: Final = 128  # that a step is linked to: the SDK drops more
MOST_STEPS: Final = 32  # that a stay is linked to; each step is linked to it

Key = tuple[str, int, int]


def key_of(resident: Resident) -> Key:
    """Handles change with the term; what a resident stands for does not."""
    return resident.request_id, resident.choice, resident.epoch


@dataclass(slots=True)
class _Stay:
    """`steps` are the contexts of those that advanced it by a token, up to MOST_STEPS; times are monotonic."""

    traceparent: str
    began_ns: int = 0
    ended_ns: int = 0
    count: int = 0
    steps: list[str] = field(default_factory=list)


class StepSpans:
    """Mutable; owned by Residences."""

    def __init__(self) -> None:
        self._stays: dict[Key, _Stay] = {}

    @property
    def is_on(self) -> bool:
        return bool(self._stays)

    def joined(self, resident: Resident, traceparent: str) -> None:
        """`traceparent` is that of the stay's own span."""
        if is_exported(traceparent):
            self._stays[key_of(resident)] = _Stay(traceparent)

    def note(self, report: StepReport, tokens: Sequence[int]) -> None:
        """`tokens` are those that each row committed."""
        result = report.result
        stays = [self._stays.get(key_of(resident)) for resident in report.residents]
        self._tell_waits(report, stays)
        exported = [stay.traceparent for stay in stays if stay is not None]
        if not exported:
            return
        step = leaf(
            names.WORKER_STEP,
            "",
            result.started_ns,
            result.ended_ns,
            links=exported[:MOST_STAYS],
            attributes={names.STEP_NUMBER: result.step_number, names.BATCH_TOKENS: result.batch_tokens},
        )
        for stay, row, committed in zip(stays, result.rows, tokens, strict=True):
            if stay is not None and (committed > 1 or not row.ids):
                chunk = {names.CHUNK_TOKENS: committed, names.STEP_NUMBER: result.step_number}
                span = (stay.traceparent, result.started_ns, result.ended_ns)
                leaf(names.CHUNK, *span, links=(step,), attributes=chunk)
            elif stay is not None:
                stay.began_ns = stay.began_ns or result.started_ns
                stay.ended_ns, stay.count = result.ended_ns, stay.count + 1
                if len(stay.steps) < MOST_STEPS:
                    stay.steps.append(step)

    def left(self, key: Key) -> None:
        """Its steps of one token each are one span: where they are is told by its links."""
        stay = self._stays.pop(key, None)
        if stay is not None and stay.count:
            span = (stay.traceparent, stay.began_ns, stay.ended_ns)
            leaf(names.STEPS, *span, links=stay.steps, attributes={names.STEP_COUNT: stay.count})

    def _tell_waits(self, report: StepReport, stays: Sequence[_Stay | None]) -> None:
        if not report.result.waits:
            return
        by_handle = {resident.sequence: stay for resident, stay in zip(report.residents, stays, strict=True)}
        for wait in report.result.waits:
            stay = by_handle.get(wait.sequence)
            if stay is not None and wait.waited_ns:
                end_ns = report.result.started_ns  # a wait ends where its row's step begins
                leaf(names.WAIT + wait.reason, stay.traceparent, end_ns - wait.waited_ns, end_ns)
