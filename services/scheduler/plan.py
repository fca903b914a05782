"""One decision: what to do, given all that is known now. Each line is a policy with a file of its own."""

from collections.abc import Iterable

from services.scheduler import lifecycle
from services.scheduler.admission import admit
from services.scheduler.apply import apply
from services.scheduler.budget import plan_chunks
from services.scheduler.events import Command, Event, Send, UpdateIndex
from services.scheduler.grants import grant_blocks
from services.scheduler.opening import open_term
from services.scheduler.recovery import relieve
from services.scheduler.resting import rest
from services.scheduler.roll_call import is_complete
from services.scheduler.state import State
from services.scheduler.timeouts import expire
from services.scheduler.worker_book import WorkerBook


def turn(state: State, events: Iterable[Event], now_s: float) -> list[Command]:
    """Take in what happened, then decide. A log of (now_s, events) replays a run."""
    for event in events:
        apply(state, event, now_s)
    return decide(state, now_s)


def decide(state: State, now_s: float) -> list[Command]:
    """Everything to be done now, in this order. What runs comes before what waits: it holds memory already.

    O(what changed since the last decision): steady decode costs nothing here.
    """
    expire(state, now_s)
    open_term(state, now_s)
    for worker in state.workers.values():
        if worker.is_leaving:
            relieve(state, worker, now_s)
    if is_complete(state):
        grant_blocks(state, now_s)
    admit(state, now_s)
    if is_complete(state):
        rest(state)
    for worker in state.workers.values():
        _send_orders(state, worker, now_s)
    _update_index(state)
    return state.take_commands()


def _send_orders(state: State, worker: WorkerBook, now_s: float) -> None:
    """Up to two versions ahead: during a long prompt the next chunk is there when a step ends."""
    while worker.may_send:
        plan_chunks(state, worker, now_s)
        order = worker.take_delta(state.term, now_s)
        if order is None:
            break
        delta, added = order
        state.commands.append(Send(worker.incarnation, delta))
        lifecycle.ordered(state, added)
    ack = worker.take_ack(state.term)
    if ack is not None:
        state.commands.append(Send(worker.incarnation, ack))


def _update_index(state: State) -> None:
    if state.memory.index_changes:
        state.commands.append(UpdateIndex(*state.memory.take_index_changes()))
