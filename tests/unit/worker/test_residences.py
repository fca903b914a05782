"""The span of each stay, and the context that its first frame carries."""

from dataclasses import dataclass, field, replace

import pytest

from libs.contracts.messages import RowResult, StepResult
from libs.engine.worker import residences
from libs.engine.worker.residences import Residences
from libs.engine.worker.step_values import StepReport
from tests.unit.worker.orders import prompt, resident

GUEST = resident(1, prompt(2), [0], traceparent="of the scheduler", cached_tokens=16)
ROW = RowResult(1, 1, 5, 0, (9,), (), "", False)
STEP = StepResult("ab", 1, 1, 1, (), (), (), 0, 1, 10, 20)


@dataclass
class RecordedSpan:
    name: str
    parent: str
    start_ns: int
    traceparent: str = "of the worker"
    attributes: dict[str, object] = field(default_factory=dict)
    ended: list[tuple[int, str]] = field(default_factory=list)

    def set(self, **attributes: object) -> None:
        self.attributes |= attributes

    def end(self, end_ns: int, error: str = "") -> None:
        self.ended.append((end_ns, error))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[RecordedSpan]:
    """Every span started, with monotonic times left as they are."""
    started: list[RecordedSpan] = []

    def start(name: str, *, parent: str, start_ns: int) -> RecordedSpan:
        started.append(RecordedSpan(name, parent, start_ns))
        return started[-1]

    monkeypatch.setattr(residences, "start_span", start)
    monkeypatch.setattr(residences, "wall_ns", lambda monotonic_ns: monotonic_ns)
    return started


def step(row: RowResult, ended_ns: int = 20) -> StepReport:
    return StepReport(replace(STEP, rows=(row,), ended_ns=ended_ns), (GUEST,))


def test_a_stay_is_one_span_from_its_add_to_its_end(spans: list[RecordedSpan]) -> None:
    """Below the scheduler's span, from the version that added it to the end of the step that ended it."""
    stays = Residences("stay")

    stays.begin([GUEST], at_ns=7)
    stays.note(step(replace(ROW, ids=())))
    stays.note(step(replace(ROW, end="stop"), ended_ns=31))
    stays.end([GUEST], at_ns=40)

    (span,) = spans
    assert (span.name, span.parent, span.start_ns, span.ended) == ("stay", "of the scheduler", 7, [(31, "")])
    assert span.attributes == {"request_id": "r1", "cached_tokens": 16, "tokens": 1, "steps": 2}


def test_only_the_first_frame_row_carries_the_context(spans: list[RecordedSpan]) -> None:
    """A chunk without a token makes no frame, so it is not the first."""
    stays = Residences("stay")
    stays.begin([GUEST], at_ns=7)

    carried = [stays.note(step(row)) for row in (replace(ROW, ids=()), ROW, ROW)]

    assert carried == [[""], ["of the worker"], [""]]


def test_a_stop_at_until_ends_the_stay(spans: list[RecordedSpan]) -> None:
    """The prefill worker's part is over with the first token, not when the scheduler has heard of it."""
    stays = Residences("stay")
    stays.begin([GUEST], at_ns=7)

    stays.note(step(replace(ROW, at_until=True), ended_ns=25))

    assert spans[0].ended == [(25, "")]


def test_a_removal_ends_the_stay(spans: list[RecordedSpan]) -> None:
    """At the boundary that took it."""
    stays = Residences("stay")
    stays.begin([GUEST], at_ns=7)

    stays.end([GUEST], at_ns=12)

    assert spans[0].ended == [(12, "")]


def test_numbers_that_are_not_finite_mark_the_span(spans: list[RecordedSpan]) -> None:
    """Whoever looks for the failure finds it here."""
    stays = Residences("stay")
    stays.begin([GUEST], at_ns=7)

    stays.note(step(replace(ROW, ids=(), end="error")))

    assert spans[0].ended == [(20, "numerical_error")]
