"""What the scheduler tells about itself. Reads the State, changes nothing."""

from libs.contracts.messages import CellStatus
from services.scheduler.state import DECODE, DISAGGREGATED, PREFILL, State


def cell_status(state: State, problems: tuple[str, ...] = ()) -> CellStatus:
    """`problems` are those of an audit just made."""
    pool = state.memory.pool
    return CellStatus(
        cell=state.policy.cell,
        model=state.policy.model,
        term=state.term,
        workers=tuple(sorted(worker.name for worker in state.workers.values() if worker.is_ready)),
        blocks_total=pool.total_blocks,
        blocks_free=pool.free_blocks,
        blocks_cached=len(pool.cached),
        blocks_held=pool.held_blocks,
        blocks_freeing=len(pool.freeing),
        block_tokens=state.facts.block_tokens if state.facts else 0,
        waiting=len(state.queue) + len(state.swapped),
        running=len(state.running),
        moved_sequences=state.counts["moved_sequences"],
        recomputed_tokens=state.counts["recomputed_tokens"],
        problems=problems,
    )


def missing_roles(state: State) -> tuple[str, ...]:
    """Roles without which nothing can be served and that no worker fills."""
    needed = (DECODE, PREFILL) if state.policy.role == DISAGGREGATED else (DECODE,)
    present = {worker.role for worker in state.workers.values() if worker.is_ready}
    return tuple(role for role in needed if role not in present)
