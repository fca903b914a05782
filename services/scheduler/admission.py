"""Which waiting choices start now.

In the order of the queue, and the first that does not fit stops the rest, so a long prompt waits its turn instead of
being overtaken for ever. Only those who wait for a prefix that another one computes are passed over: it is not our time
they need.
"""

from libs.contracts.errors import ContextTooLong
from services.scheduler import (
    forking,
    grants,
    headroom,
    isolation,
    lifecycle,
    opening,
    placement,
    poison,
    recovery,
    residence,
    resting,
    roll_call,
    shedding,
    tables,
)
from services.scheduler.choice import Choice, Phase
from services.scheduler.placement import Place
from services.scheduler.prefix import Hit
from services.scheduler.reasons import Reason
from services.scheduler.state import State
from services.scheduler.victim import forsakes, give_way


def admit(state: State, now_s: float) -> None:
    """Admit until somebody must wait for something other than a prefix."""
    headroom.release(state, now_s)
    while (choice := _next(state)) is not None:
        if shedding.shed(state, choice, now_s) or headroom.hold(state, choice, now_s):
            continue
        if choice.swapped is not None and forsakes(state, choice, now_s):
            continue
        reason = _admit(state, choice, now_s)
        if reason is Reason.NO_BLOCKS and _find_room(state, choice):
            continue
        if choice not in state.swapped:  # those wait because they gave way
            choice.explain(reason, now_s)
        if reason not in (Reason.ADMITTED, Reason.PENDING_PREFIX, Reason.FAILED):
            break
    for misplaced, reason in state.queue.take_misplaced():
        misplaced.explain(reason, now_s)


def _next(state: State) -> Choice | None:
    """Swapped ones resume before anybody else of their class; but for a suspect, who is gone in a step or two."""
    head, swapped = state.queue.head(), state.swapped.head()
    if head is None or swapped is None:
        return swapped or head
    is_before = poison.runs_alone(head) or head.sequence.priority < swapped.sequence.priority
    return head if is_before else swapped


def _admit(state: State, choice: Choice, now_s: float) -> Reason:
    """Admit one choice if all it needs is there; else say what is not."""
    if state.running and forking.rows(state) + len(choice.forks) >= state.policy.max_running:
        return Reason.MAX_RUNNING
    if state.facts is None:
        return Reason.NO_WORKER
    if not roll_call.is_complete(state):
        return Reason.UNKNOWN_WORKERS
    if not all(opening.inherit(state, each, now_s) for each in (*choice.forks, choice)):
        return Reason.FAILED
    if not lifecycle.fit_to_cell(state, choice):
        lifecycle.fail(state, choice, ContextTooLong("the prompt does not fit the context or the KV pool"), now_s)
        return Reason.FAILED
    forking.settle(state, choice)
    available = state.memory.available_blocks(grants.wants_room_as(state, choice))
    if available < choice.needs_blocks + len(state.running):
        return Reason.NO_BLOCKS
    hit = resting.extend(state, choice, tables.match(state.memory, choice))
    if hit.pending is not None:
        state.queue.park(choice, hit.pending)
        return Reason.PENDING_PREFIX
    where = placement.place(state, choice, max(len(hit.blocks), len(hit.rested)))
    if where is None:
        return _without_place(state, choice, now_s)
    if not _reserve_blocks(state, choice, hit, where):
        return Reason.NO_BLOCKS
    state.counts["rested_hits"] += bool(hit.rested)
    _start(state, choice, where)
    return Reason.ADMITTED


def _without_place(state: State, choice: Choice, now_s: float) -> Reason:
    if not poison.runs_alone(choice):
        return Reason.NO_WORKER
    isolation.vacate(state, now_s)
    return Reason.SUSPECTED


def _find_room(state: State, choice: Choice) -> bool:
    """Younger ones that wait on blocks of a lost worker's attempt give them up; at last it gives up its own.

    A copy's source is a block more than it needs, and in a small pool that may be the one that is missing.
    """
    choice.needs_blocks = 0
    if give_way(state, older=choice):
        return True
    is_moving = state.resting or state.memory.pool.freeing or any(w.leaving for w in state.workers.values())
    is_alone = not (state.running or is_moving)
    return is_alone and (choice.keeps_blocks or choice.beam is not None) and give_way(state)


def _reserve_blocks(state: State, choice: Choice, hit: Hit, where: Place) -> bool:
    """Its known tokens, the next one, and what a grant reaches ahead; a spare block stays for every running choice.

    The look-ahead shrinks to an even share of what is left, so it never keeps a prompt out.
    """
    memory, wanting = state.memory, grants.wants_room_as(state, choice)
    running, forks = len(state.running) + len(choice.forks), forking.own_blocks(memory, choice)
    there = len(choice.table) + len(hit.blocks)
    needed = memory.blocks_for(min(len(choice.ids) + 1, choice.slots)) - there
    choice.needs_blocks = needed + forks + memory.idle_blocks(hit)
    spare = memory.available_blocks(wanting) - choice.needs_blocks - running
    if spare < 0:
        return False
    reach = min(len(choice.ids) + 1 + grants.ahead_tokens(state, where.decode), choice.slots)
    ahead = memory.blocks_for(reach) - there - needed
    fresh = needed + min(ahead, spare // (running + 1)) + forks
    if not tables.reserve(memory, choice, hit, fresh, wanting):
        return False
    forking.deal(memory, choice)
    return True


def _start(state: State, choice: Choice, where: Place) -> None:
    state.queue.remove(choice)
    state.swapped.remove(choice)
    choice.phase = Phase.PREFILLING
    choice.decode_worker = where.decode.incarnation
    if choice.cached_tokens < 0:
        choice.cached_tokens = choice.cursor
        state.counts["prefix_query_tokens"] += choice.prompt_tokens
        state.counts["prefix_hit_tokens"] += choice.cached_tokens
        choice.share.prefilled(choice.prompt_tokens - choice.cached_tokens)
    if not choice.copies:
        recovery.account(state, choice)  # else where it begins is still to be found
    if poison.runs_alone(choice):
        where.decode.isolates = choice.handle
    if where.prefill is where.decode:
        is_brief = bool(choice.forks) or choice.beam is not None
        until = choice.generated + 1 if is_brief else choice.params.max_tokens
        residence.join(state, choice, where.decode, until)
    else:
        where.decode.reserved.add(choice.handle)
        residence.join(state, choice, where.prefill, choice.generated + 1)
