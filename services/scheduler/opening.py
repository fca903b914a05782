"""How a term opens: what an older one's workers compute goes on where it is, in the blocks that it has.

Until the term opens they step on by themselves, as far as their grants reach. It opens when everybody who may write to
the pool is known, and each sequence that they told of has come from the queue and its gateway has said what it holds.
"""

from collections.abc import Iterator

from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import HeldSequence, Hello
from services.scheduler import lifecycle, poison, recovery, residence, roll_call, tables
from services.scheduler.choice import Choice, Phase
from services.scheduler.reasons import Reason
from services.scheduler.state import PREFILL, State, Told
from services.scheduler.worker_book import WorkerBook

KNOWN_S = 1.0  # for what workers told of to be known; the rest is computed again if it ever comes


def note(state: State, hello: Hello, now_s: float) -> None:
    """Remember what a worker of an older term holds; a later Hello of it replaces an earlier one."""
    for held in hello.residents:
        state.inherited.setdefault((held.request_id, held.choice), {})[hello.incarnation] = held
    if state.open_by_s is None:
        state.open_by_s = now_s + KNOWN_S


def open_term(state: State, now_s: float) -> None:
    """Open if nothing more is to be waited for."""
    if state.is_open or state.open_by_s is None or not roll_call.is_known(state):
        return
    if now_s < state.open_by_s and any(_is_awaited(state, told) for told in state.inherited):
        return
    state.is_open = True
    state.settled.clear()
    for told in list(state.inherited):
        choice = _choice(state, told)
        state.counts["unknown_resident"] += choice is None
        if choice is not None:
            _adopt(state, choice, now_s)
    for worker in state.workers.values():
        if worker.is_reachable and not worker.has_order:
            lifecycle.send_snapshot(state, worker, worker.began)


def due_s(state: State) -> float | None:
    """When it opens whatever is still unknown; None while something else has to come first."""
    return None if state.is_open or not roll_call.is_known(state) else state.open_by_s


def inherit(state: State, choice: Choice, now_s: float) -> bool:
    """Before it is computed anew: above all epochs, with what a worker said of an attempt that was not taken back.

    Of that only its gateway knows: without an answer what workers say of it is not believed. False when it contradicts
    the gateway's log.
    """
    told = state.inherited.pop((choice.request_id, choice.index), {}).values()
    valid = [held for held in told if choice.is_older and held.epoch >= choice.epoch]
    choice.epoch = max([choice.epoch + choice.is_older, *(held.epoch + 1 for held in told)])
    choice.is_older = False
    held = max(valid, key=lambda held: (held.epoch, len(held.ids)), default=None)
    return held is None or recovery.learn(state, choice, _generated(choice, held), now_s)


def _choice(state: State, told: Told) -> Choice | None:
    group = state.requests.get(told[0])
    return None if group is None else group.choice(told[1])


def _is_awaited(state: State, told: Told) -> bool:
    """A sequence that ended is most likely delivered and gone: it comes or not, nobody's stream waits for it."""
    choice = _choice(state, told)
    if choice is not None:
        return choice.phase is Phase.ASKING
    return told[0] not in state.settled and any(not held.end for held in state.inherited[told].values())


def _adopt(state: State, choice: Choice, now_s: float) -> None:
    """Let it go on as a resident of the worker that has most of it, in the same epoch.

    A prompt that others wait for to fork from it is computed again: its worker may have drawn for them what nobody has.
    So is a beam search.
    """
    if choice not in state.queue or not choice.is_older or poison.runs_alone(choice):
        return
    if choice.forks or choice.beam is not None:
        return
    if choice.params.logprobs >= 0 or choice.params.prompt_logprobs >= 0 or not lifecycle.fit_to_cell(state, choice):
        return  # Hello tells no log-probabilities: they are computed again
    holders = max(_holders(state, choice), key=lambda holder: len(holder[1].ids), default=None)
    if holders is None or not recovery.learn(state, choice, _generated(choice, holders[1]), now_s):
        return
    worker, held = holders
    del state.inherited[choice.request_id, choice.index]
    state.queue.remove(choice)
    choice.is_older, choice.cached_tokens = False, held.cached_tokens
    tables.adopt(state.memory, choice, held.block_table, held.cursor)
    is_decoding = worker.role != PREFILL and len(held.ids) > choice.prompt_tokens and len(held.ids) == held.cursor + 1
    choice.phase = Phase.DECODING if is_decoding else Phase.PREFILLING
    choice.explain(Reason.DECODING if is_decoding else Reason.ADMITTED, now_s)
    residence.join(state, choice, worker, held.until if worker.role == PREFILL else choice.params.max_tokens)
    state.needy[choice.handle] = choice  # its grants may be used up: then no row of it will tell
    state.counts["adopted_sequences"] += 1


def _holders(state: State, choice: Choice) -> Iterator[tuple[WorkerBook, HeldSequence]]:
    """Workers that may go on with it: an attempt that its gateway listens to, in blocks that there are."""
    for incarnation, held in state.inherited[choice.request_id, choice.index].items():
        worker = state.workers.get(incarnation)
        if worker is None or not worker.is_reachable or held.epoch != choice.epoch:
            continue
        if held.cursor < len(held.ids) and _is_sound(state, held):
            yield worker, held
        else:
            state.counts["unsound_resident"] += 1


def _is_sound(state: State, held: HeldSequence) -> bool:
    """Whether its blocks are in the pool, enough, and not written by another that goes on, nor its own by two."""
    table, block_tokens = held.block_table, state.memory.block_tokens
    if not blocks_for(held.cursor, block_tokens) <= len(table) == len(set(table)):
        return False
    if max(table, default=0) >= state.memory.pool.total_blocks:
        return False
    written = {block for other in state.running.values() for block in other.table[other.cursor // block_tokens :]}
    own = table[held.cursor // block_tokens :]
    return written.isdisjoint(table) and not any(state.memory.pool.references[block] for block in own)


def _generated(choice: Choice, held: HeldSequence) -> tuple[int, ...]:
    """What was generated before its end: the last token of an ended one is drawn again, to be judged again."""
    generated = held.ids[choice.prompt_tokens :]
    return generated[:-1] if held.end else generated
