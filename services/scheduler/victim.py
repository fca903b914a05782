"""Who gives way when running choices have used up the pool, and how: the youngest of the lowest class.

It is swapped to the host tier, or computed again; or the one that is out of blocks waits, where another ends before
either would pay (swap_cost.py).
"""

from collections import Counter

from services.scheduler import residence, swapping, tables
from services.scheduler.choice import Choice, Phase
from services.scheduler.order import rank
from services.scheduler.reasons import Reason
from services.scheduler.state import DISAGGREGATED, PREFILL, State
from services.scheduler.swap_cost import COST, FIRST_TOKEN_S, SWAP, WAIT, Costs, choose, costs

NEVER_S = float("inf")


def youngest(state: State) -> Choice | None:
    """The latest arrival; None when only one runs. The oldest is never taken, so somebody always gets to its end."""
    return max(state.running.values(), key=rank) if len(state.running) > 1 else None


def preempt_for(state: State, needy: Choice, now_s: float) -> None:
    """Take the youngest off its worker, unless blocks are on their way back already.

    It waits with all its tokens: those that are swapped in a queue of their own, others in their old place, and what
    they have committed stays cached as long as it can.
    """
    if give_way(state) or state.memory.pool.freeing or state.resting:
        return
    if any(worker.leaving for worker in state.workers.values()):
        return
    victim = youngest(state)
    if victim is None:
        return
    victim.costs = _costs(state, victim)
    way = choose(state.policy.preemption, victim.costs)
    if way == WAIT:
        _await_blocks(state, needy)
        return
    worker = state.workers[victim.worker]
    victim.phase = Phase.WAITING
    if way == SWAP and swapping.begin_out(state.memory, victim, worker):
        victim.explain(Reason.PREEMPTED_SWAP, now_s)
        state.counts["preempted_swap"] += 1
    else:
        victim.explain(Reason.PREEMPTED_RECOMPUTE, now_s)
        state.counts["preempted_recompute"] += 1
    residence.leave(state, victim)


def _await_blocks(state: State, needy: Choice) -> None:
    if not needy.awaits_blocks:
        needy.awaits_blocks = True
        needy.remark(Reason.BLOCKS_SOON)
        state.counts["preemption_waits"] += 1


def give_way(state: State, older: Choice | None = None) -> bool:
    """Have choices that keep blocks without running give them up, the youngest first, until one comes back; only
    younger ones than `older`. Whether one did.
    """
    references = state.memory.pool.references
    while (giver := _giver(state, older)) is not None:
        blocks = _kept(giver)
        state.queue.wake(tables.release(state.memory, giver))
        if giver in state.swapped:
            state.swapped.remove(giver)
            residence.wait(state, giver)
        giver.needs_blocks = 0
        state.counts["kept_blocks_given_up"] += 1
        if not all(references[block] for block in blocks):
            return True
    return False


def _giver(state: State, older: Choice | None) -> Choice | None:
    """The youngest with a block that nobody uses but those who may have to give it up."""
    keeping = [choice for choice in state.choices.values() if choice.keeps_blocks and not choice.worker]
    if older is not None:
        keeping = [choice for choice in keeping if rank(choice) > rank(older)]
    users, references = Counter(block for choice in keeping for block in _kept(choice)), state.memory.pool.references
    givers = (choice for choice in keeping if any(references[block] == users[block] for block in _kept(choice)))
    return max(givers, key=rank, default=None)


def _kept(choice: Choice) -> tuple[int, ...]:
    return (*choice.table, *(tail.block for tail in choice.tails))


def forsakes(state: State, swapped: Choice, now_s: float) -> bool:
    """Whether bringing it back costs more than computing it again: then it waits with the others from here on."""
    rested = swapped.swapped
    assert rested is not None
    tokens = rested.tokens - rested.first * state.memory.block_tokens
    recompute_s = tokens * _prefill_token_s(state, elsewhere=state.policy.role == DISAGGREGATED)
    if state.policy.preemption != COST or len(rested.host_blocks) * state.swap_rates.in_s <= recompute_s:
        return False
    state.swapped.remove(swapped)
    state.queue.wake(tables.release(state.memory, swapped))
    residence.wait(state, swapped)
    swapped.explain(Reason.PREEMPTED_RECOMPUTE, now_s)
    state.counts["swaps_forsaken"] += 1
    return True


def _costs(state: State, victim: Choice) -> Costs:
    memory, worker = state.memory, state.workers[victim.worker]
    first = swapping.first_private(memory, victim)
    blocks = memory.blocks_for(victim.cursor) - first
    is_bound = victim.forks or victim.beam is not None  # to others, who wait for what it is about to tell
    may_swap = blocks > 0 and not (victim.has_items or is_bound or worker.is_unsent(victim))
    return costs(
        state.swap_rates,
        blocks=max(blocks, 0),
        tokens=max(victim.cursor - first * memory.block_tokens, 0),
        token_s=_prefill_token_s(state, elsewhere=victim.decode_worker != victim.worker),
        wait_s=_wait_s(state),
        has_room=may_swap and len(victim.table) - first <= memory.tier.available_blocks,
    )


def _prefill_token_s(state: State, *, elsewhere: bool) -> float:
    """What a token takes where it would be computed again: on a prefill worker, if there is one, or a decode worker."""
    computing = [worker for worker in state.workers.values() if worker.prefill_rate.reports]
    prefillers = [worker for worker in computing if worker.role == PREFILL] if elsewhere else []
    return min((worker.prefill_rate.token_s for worker in prefillers or computing), default=FIRST_TOKEN_S)


def _wait_s(state: State) -> float:
    """Until the first of those that run must end: it has the blocks to get there."""
    waits = []
    for choice in state.running.values():
        worker = state.workers[choice.worker]
        left = choice.params.max_tokens - choice.generated
        if choice.phase is Phase.DECODING and len(choice.table) * state.memory.block_tokens >= choice.slots:
            rows = max(worker.load, 1)
            waits.append(left * worker.fit.predict_s(rows, rows))
    return min(waits, default=NEVER_S)
