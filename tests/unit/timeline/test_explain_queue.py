"""Who waited for whose sake, in words: of another class, with a deadline, or of a tenant that had had less."""

from typing import Any

import pytest

from libs.timeline.explain import explain
from services.scheduler.fit import StepTimeFit
from tests.unit.scheduler.cell import params, prompt
from tests.unit.timeline.recorded import RecordedCell, record_turns, to_ns, traced
from tests.unit.timeline.test_explain import hybrid, told


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch) -> None:
    record_turns(monkeypatch)


def ended(*requests: tuple[str, dict[str, Any]]) -> RecordedCell:
    """A cell that runs one at a time, and in which these came one after the other."""
    cell = hybrid(max_running=1)
    for number, (name, fields) in enumerate(requests):
        cell.submit(name, prompt(20, 100 * number), params(4), **fields)
    cell.run()
    for name, _ in requests:
        cell.finish(name)
    return cell


def test_who_is_overtaken_by_an_earlier_class_is_told_so() -> None:
    """It was the next, and then there was another next."""
    cell = ended(("a", {}), ("b", {}), ("c", {"priority": -1}))

    assert "behind requests of an earlier priority." in told(cell, "b")


def test_who_is_overtaken_for_a_deadline_is_told_so() -> None:
    """Whatever its own tenant was served."""
    cell = ended(("a", {}), ("b", {}), ("c", {"is_timed": True, "deadline_s": 60.0}))

    assert "behind a request with an earlier deadline." in told(cell, "b")


def test_who_waits_because_its_tenant_had_enough_is_told_so() -> None:
    """The flood's second request waits for the other tenant's first."""
    cell = ended(("a", {"tenant": "flood"}), ("b", {"tenant": "flood"}), ("c", {"tenant": "other"}))

    assert "because its tenant had been served more than another one that waited." in told(cell, "b")


def test_who_was_given_up_is_told_what_it_lacked() -> None:
    """How long it would have taken at least, and how long it had."""
    cell = hybrid(max_running=1)
    cell.submit("a", prompt(20), params(40))
    for _ in range(6):
        cell.step(next(iter(cell.workers.values())))
    for worker in cell.state.workers.values():
        worker.fit = StepTimeFit(reports=100, base_s=0.1, per_token_s=0.1)
    cell.submit("b", prompt(50, 300), params(4), is_timed=True, deadline_s=2.0)

    assert words_of(cell, "b") == (
        "Given up 2,000 ms before its deadline: it needed 4,080 ms at least, and others were before it."
    )


def test_a_passed_deadline_is_told_with_where_it_passed() -> None:
    """As the reason before it."""
    cell = hybrid(max_running=1)
    cell.submit("a", prompt(20), params(4))
    cell.submit("b", prompt(50, 300), params(4), deadline_s=0.5)
    cell.alive()
    cell.pass_s(0.5)

    assert words_of(cell, "b") == "Its deadline passed where it was (max running)."


def words_of(cell: RecordedCell, request_id: str) -> str:
    """What is told of a request that failed, before how it ended."""
    served = cell.served[request_id]
    served.ended_ns, served.outcome, served.error = to_ns(cell.now_s), "error", "x"
    store = cell.store()
    *_, words, ended = explain(store, traced(store, request_id))
    assert ended == "It ended as error, with x."
    return words
