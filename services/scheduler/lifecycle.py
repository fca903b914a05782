"""A request from its arrival to the moment nobody owes anybody anything about it."""

import heapq
from collections.abc import Iterable
from dataclasses import replace

from libs.contracts.errors import HeadraceError, InvalidRequest, WireError
from libs.contracts.messages import Failed, Finished, Sequence
from services.scheduler import placement, residence, tables
from services.scheduler.choice import Choice, Phase
from services.scheduler.events import AckRequest, Ordered, Send, Started, Tell
from services.scheduler.reasons import Reason
from services.scheduler.state import Gateway, State
from services.scheduler.worker_book import WorkerBook


def arrive(state: State, sequence: Sequence, traceparent: str, now_s: float) -> Choice | None:
    """Let a new sequence wait. None for one that was cancelled already (it is done) or is held already (dropped)."""
    if sequence.request_id in state.requests:
        state.counts["duplicate_sequence"] += 1
        return None
    if state.cancelled.pop(sequence.request_id, None) is not None:
        state.commands.append(AckRequest(sequence.request_id, Reason.CANCELLED.value))
        return None
    choice = Choice(
        state.next_handle(), sequence, traceparent, list(sequence.ids), sequence.params, now_s, sequence.epoch
    )
    choice.journal = state.journal
    state.journal.append((choice, choice.reason))
    state.requests[choice.request_id] = state.choices[choice.handle] = choice
    state.gateways.setdefault(choice.gateway, Gateway(now_s)).request_ids.add(choice.request_id)
    heapq.heappush(state.deadlines, (choice.deadline_s, choice.request_id))
    state.queue.push(choice)
    if sequence.choices != 1 or not sequence.ids or sequence.params.max_tokens < 1:
        fail(state, choice, InvalidRequest("one choice, a prompt and at least one token to generate are needed"), now_s)
    return choice


def fit_to_cell(state: State, choice: Choice) -> bool:
    """Cut its max_tokens to what context and pool hold beside the prompt. False when that is not even one."""
    assert state.facts is not None
    limit_tokens = min(state.facts.max_model_len, state.memory.total_tokens)
    room = limit_tokens - choice.prompt_tokens
    if choice.params.max_tokens > room >= 1:
        choice.params = replace(choice.params, max_tokens=room)
    return room >= 1


def ordered(state: State, choices: Iterable[Choice]) -> None:
    """An order that adds these is on its way; the first one ends their waiting as their trace tells it."""
    for choice in choices:
        if not choice.is_ordered:
            choice.is_ordered = True
            state.commands.append(Ordered(choice.request_id, choice.waits_s()))


def send_snapshot(state: State, worker: WorkerBook, taken_version: int) -> None:
    """Give a worker that took nothing after `taken_version` its whole order."""
    for choice in worker.never_heard_of(taken_version):
        residence.left(state, choice)
    snapshot, added = worker.take_snapshot(state.term, taken_version)
    state.commands.append(Send(worker.incarnation, snapshot))
    ordered(state, added)


def started(state: State, choice: Choice) -> None:
    """Its first token, ever, is in the log."""
    queue_s = sum(spent for _, spent in choice.waits_s())
    state.commands.append(Started(choice.request_id, queue_s, choice.waited_s.get(Reason.ADMITTED, 0.0)))


def hand_over(state: State, choice: Choice, now_s: float) -> None:
    """Its prefill worker stopped at `until`: the decode worker goes on in the same blocks, in the same epoch."""
    decode = state.workers.get(choice.decode_worker)
    residence.unreserve(state, choice)
    if decode is None or not decode.is_ready:
        decode = placement.least_loaded_decoder(state)
    if decode is None:
        choice.phase = Phase.WAITING
        choice.explain(Reason.NO_WORKER, now_s)
        residence.left(state, choice)
        return
    choice.explain(Reason.HANDED_OVER, now_s)
    residence.join(state, choice, decode, choice.params.max_tokens)


def end(state: State, choice: Choice, reason: str, now_s: float) -> None:
    """Its worker judged that it is complete. The log stays until the gateway says that it has all of it."""
    choice.phase, choice.end = Phase.ENDED, reason
    choice.explain(Reason.STOPPED, now_s)
    finished = Finished(choice.request_id, choice.epoch, 0, choice.generated, reason, state.term, state.policy.cell)
    state.commands.append(Tell(choice.gateway, finished, choice.traceparent))


def stop_at(state: State, choice: Choice, position: int, now_s: float) -> None:
    """The gateway saw a stop string end at `position`: it wins over any later end of the worker.

    Tokens up to there may still be under way from the worker; those after it are not part of the answer.
    """
    if choice.phase is Phase.FAILED or (choice.end and choice.total <= position + 1):
        return
    was_open = choice.is_open
    choice.phase, choice.end, choice.stop_position = Phase.ENDED, "stop", position
    cut(choice, position)
    choice.explain(Reason.STOPPED, now_s)
    if was_open:
        _withdraw(state, choice)


def cut(choice: Choice, position: int) -> None:
    """Drop what is logged after `position`."""
    del choice.ids[choice.prompt_tokens + position + 1 :]
    del choice.logprobs[position + 1 :]


def fail(state: State, choice: Choice, error: HeadraceError, now_s: float, *, reason: Reason = Reason.FAILED) -> None:
    """End it by a typed error; it is kept until its gateway has answered."""
    was_open = choice.is_open
    choice.phase = Phase.FAILED
    choice.explain(reason, now_s)
    state.counts[f"failed_{error.code}"] += 1
    failed = Failed(choice.request_id, choice.epoch, WireError.of(error), state.term, state.policy.cell)
    state.commands.append(Tell(choice.gateway, failed, choice.traceparent))
    if was_open:
        _withdraw(state, choice)


def forget(state: State, choice: Choice, reason: Reason, now_s: float) -> None:
    """Nobody wants to hear of it any more: acknowledge its message. If it runs, it is taken off its worker."""
    del state.requests[choice.request_id]
    gateway = state.gateways[choice.gateway]
    gateway.request_ids.remove(choice.request_id)
    if not gateway.request_ids:
        del state.gateways[choice.gateway]
    state.commands.append(AckRequest(choice.request_id, reason.value))
    choice.explain(reason, now_s)
    was_open, choice.phase = choice.is_open, Phase.DROPPED
    if was_open:
        _withdraw(state, choice)


def _withdraw(state: State, choice: Choice) -> None:
    """Take a choice, just closed, out of the queue or off its worker."""
    if choice.worker:
        if not choice.leaving:
            residence.leave(state, choice)
        return
    state.queue.remove(choice)
    state.asking.pop(choice.handle, None)
    state.queue.wake(tables.release(state.memory, choice))
    del state.choices[choice.handle]
