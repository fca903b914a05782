"""The waits of exported requests as spans, over runs whose steps take 20 ms each."""

from collections.abc import Iterable
from typing import Any

import pytest

from services.scheduler import wait_spans
from services.scheduler.events import Command, Event
from services.scheduler.plan import turn
from services.scheduler.state import State
from services.scheduler.wait_spans import WaitSpans
from tests.fakes.leaves import Leaf, keep_leaves
from tests.unit.scheduler import cell as cell_module
from tests.unit.scheduler.cell import params, prompt
from tests.unit.timeline.recorded import RecordedCell, to_ns

ORDER_NS = 5_000_000  # from a decision to the step that follows from it


@pytest.fixture
def leaves(monkeypatch: pytest.MonkeyPatch) -> list[Leaf]:
    """Of all requests but those whose name begins with "hidden"; every turn of a cell is followed."""
    spans = WaitSpans(lambda now_s: to_ns(now_s) - ORDER_NS)

    def followed(state: State, events: Iterable[Event], now_s: float) -> list[Command]:
        taken = tuple(events)
        commands = turn(state, taken, now_s)
        spans.on_turn(now_s, taken, commands, state.take_journal())
        return commands

    monkeypatch.setattr(cell_module, "turn", followed)
    monkeypatch.setattr(wait_spans, "is_exported", lambda traceparent: "hidden" not in traceparent)
    return keep_leaves(wait_spans, monkeypatch)


def hybrid(**policy: Any) -> RecordedCell:
    cell = RecordedCell(**policy)
    cell.add_worker("decode-1")
    return cell


def test_a_wait_is_a_span_with_its_reason_until_it_waits_no_more(leaves: list[Leaf]) -> None:
    """One for each reason, end to end; who is taken at once waits for nothing."""
    cell = hybrid(max_running=1)
    for name, first in (("a", 100), ("b", 500), ("c", 900)):
        cell.submit(name, prompt(20, first), params(4))
    cell.run()

    waits = {name: [leaf for leaf in leaves if leaf.parent == f"trace-of-{name}"] for name in "abc"}
    assert waits["a"] == []
    assert [leaf.name for leaf in waits["b"]] == ["wait.max_running"]
    assert [leaf.name for leaf in waits["c"]] == ["wait.behind_older", "wait.max_running"]
    assert waits["c"][0].end_ns == waits["c"][1].start_ns == waits["b"][0].end_ns
    assert waits["b"][0].end_ns - waits["b"][0].start_ns >= 4 * 20_000_000


def test_a_hand_over_lasts_until_the_other_worker_begins(leaves: list[Leaf]) -> None:
    """Its first step, not what is decided next."""
    cell = RecordedCell(role="disaggregated")
    cell.add_worker("prefill-1", "prefill")
    cell.add_worker("decode-1", "decode")
    cell.submit("r", prompt(40), params(5))
    cell.run()

    (told,) = leaves
    assert (told.name, told.parent) == ("hand_over.order", "trace-of-r")
    assert told.end_ns - told.start_ns == ORDER_NS


def test_who_is_not_exported_is_not_told(leaves: list[Leaf]) -> None:
    """Whatever it waited for."""
    cell = hybrid(max_running=1)
    for name, first in (("a", 100), ("hidden", 500)):
        cell.submit(name, prompt(20, first), params(4))
    cell.run()

    assert leaves == []
