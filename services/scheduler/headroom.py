"""What a tenant may not take although nobody else wants it yet: else who comes next waits for the end of a long answer.

A tenant may have KEPT_RATIO times as many places, and as many blocks, as are left (Choudhury and Hahne, "Dynamic Queue
Length Thresholds", 1998): of a cell that nobody else uses seven eighths, with others less. Where there never was
another tenant it has everything.
"""

from services.scheduler import forking
from services.scheduler.choice import Choice
from services.scheduler.reasons import Reason
from services.scheduler.state import State

KEPT_RATIO = 7


def is_full(state: State, choice: Choice) -> bool:
    """Whether its tenant has to wait for the end of a request of its own."""
    if len(state.queue.tenants) < 2 or choice.was_admitted:
        return False
    tenant = choice.sequence.tenant
    own = [running for running in state.running.values() if running.sequence.tenant == tenant]
    left_places = state.policy.max_running - forking.rows(state)
    if not own or left_places <= 0:
        return False
    places = sum(1 + len(running.forks) for running in own)
    return places >= KEPT_RATIO * left_places or _takes_blocks(state, choice, own)


def _takes_blocks(state: State, choice: Choice, own: list[Choice]) -> bool:
    """Whether with this one its tenant would have more than its part of the pool."""
    memory = state.memory
    needs_blocks = memory.blocks_for(min(len(choice.ids) + 1, choice.slots))
    left_blocks = memory.pool.total_blocks - memory.pool.held_blocks - needs_blocks
    return sum(len(running.table) for running in own) + needs_blocks > KEPT_RATIO * left_blocks


def hold(state: State, choice: Choice, now_s: float) -> bool:
    """Pass over all that its tenant has waiting in its class, if it has its part."""
    if not is_full(state, choice):
        return False
    choice.explain(Reason.TENANT_FULL, now_s)
    state.queue.hold(choice)
    return True


def release(state: State) -> None:
    """Look again at tenants that were passed over and have room now."""
    for choice in state.queue.held():
        if not is_full(state, choice):
            state.queue.release(choice)
