"""One step of a beam search: when all live hypotheses of a request have told what may follow them, the best go on.

A live hypothesis is a choice whose `until` is one more token than it has: its worker commits that token, tells
candidates and stops. In between its blocks stay its own. The last continuation of a hypothesis writes on in its blocks,
the others share the full ones and copy the tail. Where blocks or a worker are missing, a hypothesis goes through the
queue like any other choice, and is computed again from what the prefix tree has of it.
"""

from libs.contracts.messages import BlockCopy, RowResult
from libs.contracts.row_words import LENGTH, STOP
from services.scheduler import grants, lifecycle, placement, residence, tables
from services.scheduler.beam import Beam, Continuation, Hypothesis, continuations
from services.scheduler.choice import Choice, Phase
from services.scheduler.group import Group
from services.scheduler.reasons import Reason
from services.scheduler.state import DECODE, State
from services.scheduler.worker_book import WorkerBook

NOTHING = Hypothesis(0.0, (), "stop")  # where the vocabulary has fewer hypotheses than were asked for


def told(state: State, worker: WorkerBook, choice: Choice, row: RowResult, now_s: float) -> None:
    """A hypothesis has stopped, and its worker tells what may follow it."""
    decode = worker if worker.role == DECODE else placement.decoder_of(state, choice)
    residence.stopped(state, choice, worker)
    if choice.beam is None or not choice.is_open:
        residence.left(state, choice)
        return
    residence.unreserve(state, choice)
    choice.worker, choice.leaving, choice.chunked, choice.moves = "", False, 0, False
    choice.phase, choice.beam.candidates = Phase.DECODING, row.candidates
    choice.share.generated(1)
    choice.explain(Reason.DECODING, now_s)
    group = state.requests[choice.request_id]
    if not any(other.beam and other.beam.is_growing for other in group.choices):
        _grow(state, group, decode, now_s)


def _grow(state: State, group: Group, worker: WorkerBook | None, now_s: float) -> None:
    search, parents = group.search, [choice for _, choice in sorted(_live(group), key=lambda live: live[0].rank)]
    assert search is not None
    told = [(beam.score, beam.candidates) for choice in parents if (beam := choice.beam) is not None]
    taken, generated = continuations(told, search.width), parents[0].generated + 1
    if generated == 1:
        lifecycle.started(state, group.leader)
    is_last = generated >= group.leader.params.max_tokens
    for one in taken:
        if one.is_end or is_last:
            parent = parents[one.parent]
            ids, logprobs = (*parent.generated_ids, one.token_id), parent.logprobs.followed_by(one.logprob)
            search.finish(one.score, ids, STOP if one.is_end else LENGTH, logprobs)
    going_on = [one for one in taken if not one.is_end]
    if is_last or not going_on or search.is_over(going_on[0].score, generated):
        _end(state, group, now_s)
    else:
        _continue(state, group, parents, going_on, worker)


def _live(group: Group) -> list[tuple[Beam, Choice]]:
    return [(choice.beam, choice) for choice in group.choices if choice.beam is not None and choice.beam.is_live]


def _continue(
    state: State, group: Group, parents: list[Choice], going_on: list[Continuation], worker: WorkerBook | None
) -> None:
    """Those without a continuation give up their blocks first; those in place come last, for the others copy them."""
    last = {one.parent: rank for rank, one in enumerate(going_on)}
    for rank, parent in enumerate(parents):
        if rank not in last:
            parent.beam = Beam()
            state.queue.wake(tables.release(state.memory, parent))
    vacant = iter([choice for choice in group.choices if choice.beam is None or not choice.beam.is_live])
    grown: list[tuple[Choice, bool]] = []
    for in_place in (False, True):
        for rank, one in enumerate(going_on):
            if (last[one.parent] == rank) is not in_place:
                continue
            parent = parents[one.parent]
            slot = parent if in_place else next(vacant)
            has_blocks = _make_room(state, slot) if in_place else _branch(state, parent, slot)
            slot.ids, slot.logprobs = [*parent.ids, one.token_id], parent.logprobs.followed_by(one.logprob)
            slot.beam = Beam(True, rank, one.score)
            grown.append((slot, has_blocks))
    for slot, has_blocks in grown:
        _go_on(state, slot, worker if has_blocks else None)


def _branch(state: State, parent: Choice, slot: Choice) -> bool:
    """Give a slot the parent's full blocks to share, and a block of its own that begins as a copy of the tail."""
    memory = state.memory
    slot.params, slot.share = parent.params, parent.share
    slot.cached_tokens, slot.is_ordered = parent.cached_tokens, True
    if not parent.table or not memory.make_room(1, grants.wants_room_as(state, slot)):
        return False
    full, tail_tokens = divmod(parent.cursor, memory.block_tokens)
    slot.table = parent.table[:full] + memory.pool.take(1)
    slot.shared_blocks, slot.cursor, slot.reach = min(full, parent.shared_blocks), parent.cursor, parent.cursor
    if tail_tokens:
        slot.copies = (BlockCopy(parent.table[full], slot.table[full], tail_tokens),)
    for block in parent.table[: full + bool(tail_tokens)]:
        memory.pool.reference(block)
    return True


def _make_room(state: State, slot: Choice) -> bool:
    """For its next token."""
    if not slot.table:
        return False
    if grants.slots_left(state, slot) > 0:
        return True
    if not state.memory.make_room(1, grants.wants_room_as(state, slot)):
        return False
    tables.grant(state.memory, slot, 1)
    return True


def _go_on(state: State, slot: Choice, worker: WorkerBook | None) -> None:
    if worker is not None and worker.is_ready:
        slot.phase = Phase.DECODING
        residence.join(state, slot, worker, slot.generated + 1)
        return
    state.queue.wake(tables.release(state.memory, slot))
    slot.phase, slot.needs_blocks = Phase.WAITING, 0
    state.queue.push(slot)


def _end(state: State, group: Group, now_s: float) -> None:
    """The best hypotheses become the answers, by rank; their gateway asks for them when it hears of their ends."""
    assert group.search is not None
    for choice in group.choices:
        choice.beam = Beam()
        state.queue.wake(tables.release(state.memory, choice))
        del state.choices[choice.handle]
        choice.phase = Phase.ENDED
    for index, epoch in group.search.epochs.items():
        group.choices[index].epoch = max(group.choices[index].epoch, epoch)
    best = group.search.finished
    for rank, choice in enumerate(group.answers):
        answer = best[rank] if rank < len(best) else NOTHING
        choice.ids, choice.logprobs = [*group.sequence.ids, *answer.ids], answer.logprobs
        lifecycle.end(state, choice, answer.reason, now_s)
