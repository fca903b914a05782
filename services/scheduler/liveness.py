"""When a worker is taken for dead: its link stays closed, or it has something to do and reports nothing.

A beating heart without progress is dead: only steps count. Rows with nothing to do are no sign of anything.
"""

from services.scheduler import grants
from services.scheduler.state import State
from services.scheduler.worker_book import WorkerBook

LINK_CLOSED_S = 1.0
SILENCE_S = 1.0
SILENCE_IN_STEPS = 10
PARKED_S = 10.0  # a grammar takes a second of a processor at most
FIRST_SILENCE_S = 5.0  # of a worker that has reported no step yet: nothing is fitted, and its memory is cold


def suspicious_s(worker: WorkerBook) -> float | None:
    """When to look at this worker, unless it says something before; None while nothing is expected of it."""
    if worker.is_lost:
        return None
    if worker.closed_s is not None:
        return worker.closed_s + LINK_CLOSED_S
    if worker.residents or worker.has_untaken:
        return worker.heard_s + _patience_s(worker)
    return None


def is_dead(state: State, worker: WorkerBook, now_s: float) -> bool:
    """Whether it must be given up now. One with nothing to do is looked at again after as long a silence."""
    due_s = suspicious_s(worker)
    if due_s is None or now_s < due_s:
        return False
    if worker.closed_s is not None or worker.has_untaken or _may_advance(state, worker, now_s):
        return True
    worker.heard_s = now_s
    return False


def _patience_s(worker: WorkerBook) -> float:
    if not worker.fit.reports:
        return FIRST_SILENCE_S
    return max(SILENCE_S, SILENCE_IN_STEPS * worker.step_s)


def _may_advance(state: State, worker: WorkerBook, now_s: float) -> bool:
    return any(
        worker.may_compute(choice, grants.slots_left(state, choice))
        for choice in worker.residents.values()
        if choice.parked_s is None or now_s - choice.parked_s > PARKED_S
    )
