"""A request from its arrival to the moment nobody owes anybody anything about it."""

import heapq
from collections.abc import Iterable
from dataclasses import replace

from libs.contracts.errors import HeadraceError, InvalidRequest, WireError
from libs.contracts.messages import Failed, Finished, Sequence
from services.scheduler import forking, placement, residence, resting, tables
from services.scheduler.beam import Beam, Search
from services.scheduler.choice import Choice, Phase
from services.scheduler.events import AckRequest, Ordered, Send, Started, Tell
from services.scheduler.group import Group
from services.scheduler.reasons import Reason
from services.scheduler.score_log import ScoreLog
from services.scheduler.state import Gateway, State
from services.scheduler.worker_book import WorkerBook

CHOICES_MAX = 128  # of a request; the gateway's own limit is not above it


def arrive(state: State, sequence: Sequence, traceparent: str, now_s: float) -> Group | None:
    """Let a new sequence wait. None for one that was cancelled already (it is done) or is held already (dropped)."""
    if sequence.request_id in state.requests:
        state.counts["duplicate_sequence"] += 1
        return None
    if state.cancelled.pop(sequence.request_id, None) is not None:
        _settle(state, sequence.request_id, Reason.CANCELLED)
        return None
    search = Search.of(sequence.params)
    wanted = max(1, min(max(sequence.choices, search.width if search else 0), CHOICES_MAX))
    choices = tuple(_choice(state, sequence, traceparent, now_s, index) for index in range(wanted))
    if sequence.params.prompt_logprobs >= 0:
        scores = ScoreLog()
        for choice in choices:
            choice.prompt_scores = scores
    group = state.requests[sequence.request_id] = Group(sequence, choices, search)
    state.gateways.setdefault(group.gateway, Gateway(now_s)).request_ids.add(group.request_id)
    heapq.heappush(state.deadlines, (group.deadline_s, group.request_id))
    for choice in choices:
        state.choices[choice.handle] = choice
        choice.beam = Beam(is_live=choice is group.leader) if search else None
        if not choice.is_dormant:
            state.queue.push(choice)
    forking.gather(state, group)
    state.journal.append((group.leader, group.leader.reason))
    is_counted = 1 <= sequence.choices <= (sequence.params.beam_width or CHOICES_MAX) <= CHOICES_MAX
    if not is_counted or not sequence.ids or sequence.params.max_tokens < 1:
        problem = f"1 to {CHOICES_MAX} choices, a prompt and at least one token to generate are needed"
        fail(state, group.leader, InvalidRequest(problem), now_s)
    return group


def _choice(state: State, sequence: Sequence, traceparent: str, now_s: float, index: int) -> Choice:
    handle, ids = state.next_handle(), list(sequence.ids)
    choice = Choice(handle, sequence, traceparent, ids, sequence.params, now_s, sequence.epoch, index)
    choice.journal = state.journal
    return choice


def fit_to_cell(state: State, choice: Choice) -> bool:
    """Cut its max_tokens to what context and pool hold beside the prompt. False when that is not even one."""
    assert state.facts is not None
    limit_tokens = min(state.facts.max_model_len, state.memory.total_tokens)
    room = limit_tokens - choice.prompt_tokens
    if choice.params.max_tokens > room >= 1:
        choice.params = replace(choice.params, max_tokens=room)
    for fork in choice.forks:
        fork.params = choice.params
    return room >= 1


def ordered(state: State, choices: Iterable[Choice]) -> None:
    """An order that adds these is on its way; the first one ends their waiting as their trace tells it."""
    for choice in choices:
        if not choice.is_ordered:
            choice.is_ordered = True
            state.commands.append(Ordered(choice.request_id, choice.waits_s()))


def send_snapshot(state: State, worker: WorkerBook, taken_version: int) -> None:
    """Give a worker that took nothing after `taken_version` its whole order."""
    for choice in worker.drop_untaken(taken_version):
        residence.left(state, choice)
    snapshot, added = worker.take_snapshot(state.term, taken_version)
    resting.stop(state, worker, taken_version, snapshot.version)
    state.commands.append(Send(worker.incarnation, snapshot))
    ordered(state, added)


def started(state: State, choice: Choice) -> None:
    """Its first token, ever, is in the log. A request's last choice, who computes the prompt, speaks for all."""
    if choice.index + 1 < choice.sequence.choices:
        return
    queue_s = sum(spent for _, spent in choice.waits_s())
    state.commands.append(Started(choice.request_id, queue_s, choice.waited_s.get(Reason.ADMITTED, 0.0)))


def hand_over(state: State, choice: Choice, now_s: float) -> None:
    """Its prefill worker stopped at `until`: the decode worker goes on in the same blocks, in the same epoch."""
    decode = placement.decoder_of(state, choice)
    residence.unreserve(state, choice)
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
    term, cell = state.term, state.policy.cell
    finished = Finished(choice.request_id, choice.epoch, choice.index, choice.generated, reason, term, cell)
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
    choice.logprobs.cut(position + 1)


def fail(state: State, choice: Choice, error: HeadraceError, now_s: float, *, reason: Reason = Reason.FAILED) -> None:
    """End its whole request by a typed error; it is kept until its gateway has answered."""
    state.counts[f"failed_{error.code}"] += 1
    failed = Failed(choice.request_id, choice.epoch, WireError.of(error), state.term, state.policy.cell)
    state.commands.append(Tell(choice.gateway, failed, choice.traceparent))
    _close(state, state.requests[choice.request_id], Phase.FAILED, reason, now_s)


def forget(state: State, group: Group, reason: Reason, now_s: float) -> None:
    """Nobody wants to hear of it any more: acknowledge its message. What runs of it is taken off its workers."""
    del state.requests[group.request_id]
    gateway = state.gateways[group.gateway]
    gateway.request_ids.remove(group.request_id)
    if not gateway.request_ids:
        del state.gateways[group.gateway]
    _settle(state, group.request_id, reason)
    _close(state, group, Phase.DROPPED, reason, now_s)


def conclude(state: State, choice: Choice, ids: tuple[int, ...], reason: str, now_s: float) -> None:
    """Its gateway has all of this choice: nothing more of it is to be computed, or told."""
    choice.phase, choice.end, choice.stop_position = Phase.ENDED, reason, len(ids) - 1
    choice.ids[choice.prompt_tokens :] = ids
    choice.logprobs.cut(len(ids))
    choice.explain(Reason.DELIVERED, now_s)
    _withdraw(state, choice)


def _close(state: State, group: Group, phase: Phase, reason: Reason, now_s: float) -> None:
    closing = [choice for choice in group.choices if choice.is_open]
    for choice in group.choices:
        choice.phase = phase
        choice.explain(reason, now_s)
    for choice in closing:
        _withdraw(state, choice)


def _settle(state: State, request_id: str, reason: Reason) -> None:
    state.commands.append(AckRequest(request_id, reason.value))
    if not state.is_open:
        state.settled.add(request_id)


def _withdraw(state: State, choice: Choice) -> None:
    """Take a choice, just closed, out of the queue or off its worker."""
    forking.drop(choice)
    forking.scatter(state, choice)
    if choice.worker:
        if not choice.leaving:
            residence.leave(state, choice)
        return
    state.queue.remove(choice)
    state.swapped.remove(choice)
    state.asking.pop(choice.handle, None)
    state.queue.wake(tables.release(state.memory, choice))
    del state.choices[choice.handle]
