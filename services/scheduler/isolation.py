"""A suspect gets a worker of its own for as long as it is one: whoever runs there gives way, and comes back after it.

It is not put beside those that are leaving: of a death in their last step it would be taken for the cause.
"""

from services.scheduler import residence
from services.scheduler.reasons import Reason
from services.scheduler.state import DECODE, State


def vacate(state: State, now_s: float) -> None:
    """Take everybody off the decode worker with the fewest rows, unless one is, or is about to be, a suspect's."""
    decoders = [worker for worker in state.workers.values() if worker.role == DECODE and worker.is_ready]
    if not decoders or any(worker.isolates or not worker.load for worker in decoders):
        return
    worker = min(decoders, key=lambda worker: worker.load)
    for choice in list(worker.residents.values()):
        residence.move(state, choice, Reason.SUSPECTS_FIRST, now_s)
    for handle in list(worker.reserved):
        residence.unreserve(state, state.choices[handle])
