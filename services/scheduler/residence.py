"""How a choice gets into a worker's order, leaves it, and what becomes of its blocks then."""

from services.scheduler import forking, keeping, swapping, tables
from services.scheduler.choice import Choice, Phase
from services.scheduler.reasons import Reason
from services.scheduler.state import State
from services.scheduler.worker_book import WorkerBook


def join(state: State, choice: Choice, worker: WorkerBook, until: int) -> None:
    """Put it into the worker's next version; it stops by itself after `until` generated tokens."""
    choice.worker, choice.until, choice.joined_tokens = worker.incarnation, until, len(choice.ids)
    if choice.is_blind:
        choice.disown()
    state.running[choice.handle] = choice
    worker.add(choice)


def leave(state: State, choice: Choice) -> None:
    """Take it out of its worker's order. Its blocks are back once the worker has confirmed that."""
    worker = state.workers[choice.worker]
    version = _take_out(state, choice, worker)
    if version:
        choice.leaving = True
        worker.leaving[choice.handle] = (choice, version)
    else:
        left(state, choice)


def move(state: State, choice: Choice, reason: Reason, now_s: float) -> None:
    """Take it off its worker, to go on elsewhere: nothing that is committed is computed again."""
    choice.phase, choice.moves = Phase.WAITING, True
    choice.explain(reason, now_s)
    leave(state, choice)


def stopped(state: State, choice: Choice, worker: WorkerBook) -> None:
    """The worker reported that it stopped by itself, which confirms its leaving; the order forgets it as well."""
    if choice.leaving:
        del worker.leaving[choice.handle]
    else:
        _take_out(state, choice, worker)


def left(state: State, choice: Choice) -> None:
    """No worker computes it any more: its blocks come back. A preempted one waits again."""
    choice.worker, choice.leaving, choice.chunked = "", False, 0
    unreserve(state, choice)
    forking.recall(state.memory, choice)
    if swapping.may_rest(state.memory, choice):
        state.queue.wake(swapping.rest(state.memory, choice))
    elif choice.phase is Phase.WAITING and (choice.moves or choice.swapped):
        state.queue.wake(keeping.set_aside(state.memory, choice))
    else:
        state.queue.wake(tables.release(state.memory, choice))
    choice.moves = False
    if choice.phase is Phase.WAITING:
        wait(state, choice)
    else:
        del state.choices[choice.handle]
    if choice.phase is not Phase.WAITING or choice.generated:
        forking.scatter(state, choice)


def wait(state: State, choice: Choice) -> None:
    """It waits to be admitted: first if its blocks rest in the host tier."""
    choice.needs_blocks = 0
    (state.swapped if choice.swapped else state.queue).push(choice)


def unreserve(state: State, choice: Choice) -> None:
    decode = state.workers.get(choice.decode_worker)
    if decode is not None:
        decode.reserved.discard(choice.handle)
    choice.decode_worker = ""


def _take_out(state: State, choice: Choice, worker: WorkerBook) -> int:
    state.running.pop(choice.handle, None)
    state.needy.pop(choice.handle, None)
    version = worker.remove(choice)
    if version:
        choice.named[worker.incarnation] = version
    return version
