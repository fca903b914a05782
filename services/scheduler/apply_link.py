"""Events of a worker's link: it attaches, begins versions, loses step with us, goes away."""

from libs.contracts.kv_layout import BLOCK_TOKENS
from libs.contracts.messages import Began, FencedOff, Gone, Hello, Leaving, Resync
from services.scheduler import lifecycle, opening, recovery, roll_call
from services.scheduler.chunk_size import ChunkSizes
from services.scheduler.events import LinkClosed, Listed, OpenCell, Refuse, Resign, Send
from services.scheduler.memory import Memory
from services.scheduler.state import DECODE, PREFILL, CellFacts, State
from services.scheduler.worker_book import WorkerBook

_CALLED = {
    "layout_fingerprint": "KV layout",
    "numerics_class": "numerics class",
    "model_digest": "model",
    "block_tokens": "block size",
    "pool": "KV pool",
    "pool_blocks": "pool size",
    "max_model_len": "context length",
    "host_pool": "host tier",
    "host_blocks": "host tier's size",
}


def hello(state: State, event: Hello, now_s: float) -> None:
    """A worker attaches, or comes back. It gets the whole order."""
    known = state.workers.get(event.incarnation)
    if event.term > state.term:
        state.commands.append(
            Refuse(event.incarnation, f"term {state.term} is over, yours is {event.term}", retry=True)
        )
    elif known is not None and known.is_lost:
        state.commands.append(Send(event.incarnation, FencedOff(state.term, "given up: its link was closed too long")))
    elif known is not None:
        known.closed_s, known.heard_s = None, now_s
        _answer(state, known, event, now_s)
    elif reason := _unfit(event):
        state.commands.append(Refuse(event.incarnation, reason))
    elif reason := _unlike(state, event):
        _turn_away(state, event, reason)
    else:
        _welcome(state, event, now_s)


def began(state: State, event: Began, now_s: float) -> None:
    worker = state.obeying(event.incarnation, event.term)
    if worker is None:
        state.counts["stale_began"] += 1
        return
    worker.heard_s = now_s
    worker.begin(event.version)
    state.memory.begin(event.incarnation, event.version)


def resync(state: State, event: Resync, now_s: float) -> None:
    worker = state.obeying(event.incarnation, event.term)
    if worker is None:
        state.counts["stale_resync"] += 1
        return
    state.counts["resync"] += 1
    worker.heard_s = now_s
    lifecycle.send_snapshot(state, worker, event.version)


def link_closed(state: State, event: LinkClosed, now_s: float) -> None:
    worker = state.workers.get(event.incarnation)
    if worker is not None and worker.has_left:
        recovery.worker_gone(state, worker, now_s)
    elif worker is not None and worker.closed_s is None:
        worker.closed_s = now_s


def leaving(state: State, event: Leaving, now_s: float) -> None:
    """It is told to stop: decide takes from it what it has."""
    worker = state.workers.get(event.incarnation)
    if worker is not None and not worker.is_lost:
        worker.is_leaving, worker.heard_s = True, now_s


def gone(state: State, event: Gone, now_s: float) -> None:
    worker = state.workers.get(event.incarnation)
    if worker is not None:
        recovery.worker_gone(state, worker, now_s)
    roll_call.strike(state, event.incarnation)


def listed(state: State, event: Listed, now_s: float) -> None:
    roll_call.listed(state, event, now_s)


def _unfit(hello: Hello) -> str:
    """Why this worker cannot serve any cell; "" when it can."""
    if hello.role not in (PREFILL, DECODE):
        return f"no such role: {hello.role!r}"
    if hello.block_tokens not in BLOCK_TOKENS:
        return f"block_tokens must be one of {BLOCK_TOKENS}, not {hello.block_tokens}"
    return ""


def _unlike(state: State, hello: Hello) -> str:
    """In what this worker differs from those that have served the cell in this term; "" when it does not."""
    if state.facts is None:
        return ""
    ours, theirs = state.facts, CellFacts.of(hello)
    unlike = [name for field, name in _CALLED.items() if getattr(ours, field) != getattr(theirs, field)]
    return f"unlike the cell's other workers in: {', '.join(unlike)}" if unlike else ""


def _turn_away(state: State, hello: Hello, reason: str) -> None:
    """For good beside workers that live. Where none is left their pool went with them, and so does this term."""
    if not state.workers:
        state.commands.append(Resign(reason))
        return
    all_lost = all(worker.is_lost for worker in state.workers.values())
    state.commands.append(Refuse(hello.incarnation, reason, retry=all_lost))


def _welcome(state: State, hello: Hello, now_s: float) -> None:
    if state.facts is None:
        _open_cell(state, CellFacts.of(hello))
    worker = state.workers[hello.incarnation] = WorkerBook(
        hello,
        now_s,
        ChunkSizes(chunk_target_s=state.policy.chunk_target_s, itl_target_s=state.policy.itl_target_s),
        state.swap_rates,
    )
    state.memory.attach(hello.incarnation, hello.version)
    state.is_succession |= hello.term > 0
    roll_call.strike(state, hello.incarnation)
    roll_call.call(state, hello.host)
    _answer(state, worker, hello, now_s)


def _answer(state: State, worker: WorkerBook, hello: Hello, now_s: float) -> None:
    """Give it its order; if it has work of an older term, when all of that is known."""
    if not worker.has_order and not state.is_open:
        opening.note(state, hello, now_s)
    if worker.has_order or state.is_open or not hello.residents:
        lifecycle.send_snapshot(state, worker, hello.version)


def _open_cell(state: State, facts: CellFacts) -> None:
    state.facts = facts
    state.memory = Memory(facts.pool_blocks, facts.block_tokens, state.policy.caching, facts.host_blocks)
    longest = min(facts.max_model_len, state.memory.total_tokens) - 1  # one token is to be generated
    state.commands.append(OpenCell(facts.block_tokens, facts.model_digest, longest))
