"""Steps as spans: traces of their own, linked to the stays in their batch, and these to them."""

from dataclasses import replace

import pytest

from libs.contracts.messages import Resident, RowResult, RowWait, StepResult
from libs.engine.worker import step_spans
from libs.engine.worker.step_spans import StepSpans, key_of
from libs.engine.worker.step_values import StepReport
from tests.fakes.leaves import SAMPLED, UNSAMPLED, Leaf, keep_leaves
from tests.unit.worker.orders import prompt, resident

A, B = (resident(number, prompt(40), [0]) for number in (1, 2))


@pytest.fixture
def leaves(monkeypatch: pytest.MonkeyPatch) -> list[Leaf]:
    return keep_leaves(step_spans, monkeypatch)


def report(number: int, *rows: tuple[Resident, bool], waits: tuple[RowWait, ...] = ()) -> StepReport:
    """Rows as (resident, whether it drew a token)."""
    results = tuple(RowResult(guest.sequence, 1, 0, 0, (7,) if drew else (), (), "", False) for guest, drew in rows)
    result = StepResult("ab", 1, 1, number, results, waits, (), 0, 41, number * 100, number * 100 + 50)
    return StepReport(result, tuple(guest for guest, _ in rows))


def test_a_step_is_linked_to_the_stays_in_it_and_a_chunk_to_its_step(leaves: list[Leaf]) -> None:
    """A request that nobody exports is in the step and in no span."""
    spans = StepSpans()
    spans.joined(A, SAMPLED)
    spans.joined(B, UNSAMPLED)

    spans.note(report(3, (A, False), (B, True)), (40, 1))

    step, chunk = leaves
    assert (step.name, step.parent, step.links) == ("worker.step", "", (SAMPLED,))
    assert (step.start_ns, step.end_ns) == (chunk.start_ns, chunk.end_ns) == (300, 350)
    assert (chunk.name, chunk.parent, chunk.links) == ("prefill.chunk", SAMPLED, ("leaf 0",))
    assert chunk.attributes == {"headrace.chunk_tokens": 40, "headrace.step": 3}


def test_the_steps_of_a_stay_are_one_span_linked_to_each(leaves: list[Leaf]) -> None:
    """From the first to the last: one span a token would be most of a trace."""
    spans = StepSpans()
    spans.joined(A, SAMPLED)
    for number in (1, 2, 3):
        spans.note(report(number, (A, True)), (1,))

    spans.left(key_of(A))

    told = leaves[-1]
    assert [leaf.name for leaf in leaves] == ["worker.step"] * 3 + ["decode.steps"]
    assert (told.parent, told.start_ns, told.end_ns) == (SAMPLED, 100, 350)
    assert told.links == ("leaf 0", "leaf 1", "leaf 2") and told.attributes == {"headrace.steps": 3}
    assert not spans.is_on


def test_links_are_bounded_and_steps_are_counted_on(leaves: list[Leaf]) -> None:
    """A long answer has more steps than a span may have links."""
    spans = StepSpans()
    spans.joined(A, SAMPLED)
    for number in range(1, 301):
        spans.note(report(number, (A, True)), (1,))

    spans.left(key_of(A))

    assert len(leaves[-1].links) == step_spans.MOST_STEPS and leaves[-1].attributes == {"headrace.steps": 300}


def test_a_wait_in_the_worker_is_told_with_its_reason_when_it_is_over(leaves: list[Leaf]) -> None:
    """It ends where the step begins that goes on."""
    spans = StepSpans()
    spans.joined(A, SAMPLED)

    spans.note(report(1, (A, True), waits=(RowWait(1, 1, "out_of_grant", 30), RowWait(2, 1, "fill_behind", 30))), (1,))

    assert (leaves[0].name, leaves[0].start_ns, leaves[0].end_ns) == ("wait.out_of_grant", 70, 100)
    assert len(leaves) == 2


def test_without_an_exported_request_nothing_is_kept(leaves: list[Leaf]) -> None:
    """Nor of one that came to a worker and never stepped."""
    spans = StepSpans()
    spans.joined(B, UNSAMPLED)
    assert not spans.is_on
    spans.note(report(1, (B, True)), (1,))
    spans.left(key_of(B))
    spans.joined(replace(B, epoch=2), SAMPLED)
    spans.left(key_of(replace(B, epoch=2)))

    assert leaves == []
