"""Blocks for running choices ahead of need, so that steady decode asks nobody."""

from services.scheduler import tables
from services.scheduler.choice import Choice
from services.scheduler.eviction import ANYONE
from services.scheduler.order import rank
from services.scheduler.state import State
from services.scheduler.victim import preempt_for
from services.scheduler.worker_book import WorkerBook

GRANT_AHEAD_S = 3.0  # a worker out of contact goes on for this long
URGENT_TOKENS = 2  # with fewer slots left, the row runs out before a version can bring more


def ahead_tokens(state: State, worker: WorkerBook) -> int:
    """How far beyond its known tokens a choice's grant should reach; at least one block."""
    block_tokens = state.memory.block_tokens
    rows = max(worker.load, 1)
    step_s = worker.fit.predict_s(rows, rows)
    return max(block_tokens, int(GRANT_AHEAD_S / step_s)) if step_s > 0 else block_tokens


def slots_left(state: State, choice: Choice) -> int:
    """Tokens it may still commit with the blocks it has."""
    return len(choice.table) * state.memory.block_tokens - choice.cursor


def is_needy(state: State, choice: Choice, ahead: int) -> bool:
    """Whether half of what a grant brings is used up, and more will be needed."""
    granted = len(choice.table) * state.memory.block_tokens
    return granted - len(choice.ids) < ahead // 2 and granted < choice.slots


def wants_room_as(state: State, choice: Choice) -> str | None:
    """The tenant against whom other tenants' floors are held: not one whose choice has nobody beside it."""
    is_alone = len(state.running) == (choice.handle in state.running)
    return ANYONE if is_alone else choice.sequence.tenant


def grant_blocks(state: State, now_s: float) -> None:
    """Give needy choices more blocks, the oldest first; where there are none at all, take them from the youngest."""
    if not state.needy:
        return
    for choice in sorted(state.needy.values(), key=rank):
        if choice.handle in state.needy:  # it may have been preempted meanwhile
            _grant(state, choice, now_s)


def _grant(state: State, choice: Choice, now_s: float) -> None:
    """At most an even share: when the pool is short, nobody's look-ahead takes what another will need next."""
    memory, worker, wanting = state.memory, state.workers[choice.worker], wants_room_as(state, choice)
    available = memory.available_blocks(wanting)
    reach = min(len(choice.ids) + ahead_tokens(state, worker), choice.slots)
    wanted = max(memory.blocks_for(reach) - len(choice.table), 0)
    blocks = min(wanted, max(1, available // len(state.running)))
    if blocks <= available and memory.make_room(blocks, wanting):
        worker.grant(choice, tables.grant(memory, choice, blocks))
        del state.needy[choice.handle]
        choice.awaits_blocks = False
    elif slots_left(state, choice) <= URGENT_TOKENS:
        preempt_for(state, choice, now_s)
