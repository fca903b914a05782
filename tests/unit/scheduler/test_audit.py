"""The audit of a running scheduler: on demand, and when nothing has happened for a while."""

import asyncio

import pytest

from libs.contracts.messages import Alive, StatusQuery
from services.scheduler import auditor
from services.scheduler.auditor import Auditor
from services.scheduler.events import AuditDue, Audited, Event, LinkClosed
from services.scheduler.state import Policy, State
from tests.unit.scheduler.cell import Cell, hybrid, params, prompt


def audited(cell: Cell) -> tuple[str, ...]:
    answer = cell.ask(StatusQuery(audit=True))
    return answer.problems  # type: ignore[union-attr]


async def turned() -> None:
    """What is due has been done."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_sound_cell_has_no_problems() -> None:
    """While it works, and when it is done."""
    cell = hybrid()
    cell.submit("a", prompt(40), params(4))
    assert audited(cell) == ()
    cell.run()
    cell.deliver("a")
    assert audited(cell) == () and cell.state.counts["audit_violation"] == 0


def test_what_is_wrong_is_told_and_counted() -> None:
    """A block that is counted for nobody shows as that."""
    cell = hybrid()
    cell.submit("a", prompt(40), params(4))
    cell.run()
    cell.deliver("a")
    [leaked] = cell.state.memory.pool.take(1)
    with pytest.raises(AssertionError, match="references differ"):
        audited(cell)
    assert cell.state.counts["audit_violation"] >= 1
    cell.state.memory.pool.dereference(leaked, {})
    cell.state.memory.pool.discard(leaked)
    assert audited(cell) == ()


def test_a_status_without_audit_costs_none() -> None:
    """Probes ask several times a second."""
    cell = hybrid()
    assert cell.status.problems == () and cell.state.counts["audits"] == 0


async def test_an_audit_follows_each_time_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One, when nothing has run for a while; heartbeats and the audit itself are no work."""
    monkeypatch.setattr(auditor, "IDLE_S", 0.0)
    posted: list[Event] = []
    watch = Auditor(State(Policy("c0", "m"), 1), posted.append)
    for event in (LinkClosed("w"), AuditDue(), Alive("g")):
        watch.on_turn(0.0, (event,), (), ())
        await turned()
    assert posted == [AuditDue()]


async def test_no_audit_disturbs_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins meanwhile puts it off."""
    monkeypatch.setattr(auditor, "IDLE_S", 0.0)
    posted: list[Event] = []
    cell = hybrid()
    watch = Auditor(cell.state, posted.append)
    watch.on_turn(0.0, (LinkClosed("w"),), (), ())
    cell.submit("a", prompt(40), params(4))
    watch.on_turn(0.0, (LinkClosed("w"),), (), ())
    await turned()
    assert posted == []


def test_a_problem_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """With what is wrong, for whoever mends it."""
    Auditor(State(Policy("c0", "m"), 3), lambda event: None).told(Audited(("block 7 is free twice",)))
    assert "block 7 is free twice" in str(vars(caplog.records[0]))
