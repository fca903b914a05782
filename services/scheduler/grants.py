"""Blocks for running choices ahead of need, so that steady decode asks nobody."""

from services.scheduler import tables
from services.scheduler.choice import Choice
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


def grant_blocks(state: State, now_s: float) -> None:
    """Give needy choices more blocks, the oldest first; where there are none at all, take them from the youngest."""
    if not state.needy:
        return
    share = max(1, state.memory.available_blocks // len(state.running))
    for choice in sorted(state.needy.values(), key=rank):
        if choice.handle in state.needy:  # it may have been preempted meanwhile
            _grant(state, choice, share, now_s)


def _grant(state: State, choice: Choice, share: int, now_s: float) -> None:
    """At most an even share: when the pool is short, nobody's look-ahead takes what another will need next."""
    memory, worker = state.memory, state.workers[choice.worker]
    reach = min(len(choice.ids) + ahead_tokens(state, worker), choice.slots)
    wanted = max(memory.blocks_for(reach) - len(choice.table), 0)
    blocks = min(wanted, share)
    if blocks <= memory.available_blocks and memory.make_room(blocks):
        worker.grant(choice, tables.grant(memory, choice, blocks))
        del state.needy[choice.handle]
    elif slots_left(state, choice) <= URGENT_TOKENS:
        preempt_for(state, now_s)
