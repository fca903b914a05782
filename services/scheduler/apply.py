"""Takes one event into the State: with plan.decide the whole core, a pure function of the events and their times."""

from collections.abc import Callable
from typing import Any

from libs.contracts.messages import Alive, Began, Gone, Hello, Leaving, Resync, StepResult
from services.scheduler import apply_control, apply_gateway, apply_link, apply_step
from services.scheduler.events import Answered, Arrived, Asked, AuditDue, Event, LinkClosed, Listed, Logged
from services.scheduler.state import State

_HANDLERS: dict[type, Callable[[State, Any, float], None]] = {
    Arrived: apply_gateway.arrived,
    Alive: apply_gateway.alive,
    Answered: apply_gateway.answered,
    Logged: apply_gateway.logged,
    Asked: apply_control.asked,
    AuditDue: apply_control.audit_due,
    Hello: apply_link.hello,
    Began: apply_link.began,
    Resync: apply_link.resync,
    Leaving: apply_link.leaving,
    LinkClosed: apply_link.link_closed,
    Gone: apply_link.gone,
    Listed: apply_link.listed,
    StepResult: apply_step.step_result,
}


def apply(state: State, event: Event, now_s: float) -> None:
    """Change the state by what happened. `now_s` never goes back between calls."""
    _HANDLERS[type(event)](state, event, now_s)
