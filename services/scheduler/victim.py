"""Who gives way when running choices have used up the pool: the youngest, by recompute."""

from services.scheduler import residence, tables
from services.scheduler.choice import Choice, Phase
from services.scheduler.order import rank
from services.scheduler.reasons import Reason
from services.scheduler.state import State


def youngest(state: State) -> Choice | None:
    """The latest arrival; None when only one runs. The oldest is never taken, so somebody always gets to its end."""
    return max(state.running.values(), key=rank) if len(state.running) > 1 else None


def preempt_for(state: State, now_s: float) -> None:
    """Take the youngest off its worker, unless blocks are on their way back already.

    It waits in its old place of the queue with all its tokens; its committed blocks stay cached as long as they can.
    """
    if give_way(state) or state.memory.pool.freeing:
        return
    if any(worker.leaving for worker in state.workers.values()):
        return
    victim = youngest(state)
    if victim is None:
        return
    victim.phase = Phase.WAITING
    victim.explain(Reason.PREEMPTED_RECOMPUTE, now_s)
    state.counts["preempted_recompute"] += 1
    residence.leave(state, victim)


def give_way(state: State, older: Choice | None = None) -> bool:
    """Have the youngest choice that keeps blocks without running give them up; only a younger one than `older`."""
    keeping = [choice for choice in state.choices.values() if choice.keeps_blocks and not choice.worker]
    giver = max(keeping, key=rank, default=None)
    if giver is None or (older is not None and rank(giver) <= rank(older)):
        return False
    state.queue.wake(tables.release(state.memory, giver))
    giver.needs_blocks = 0
    state.counts["kept_blocks_given_up"] += 1
    return True
