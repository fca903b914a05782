"""Who waited for whose sake, in words: of another class, with a deadline, or of a tenant that had had less."""

from typing import Any

import pytest

from tests.unit.scheduler.cell import params, prompt
from tests.unit.timeline.recorded import RecordedCell, record_turns
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
