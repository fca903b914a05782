"""Cached prefixes that are about to be evicted are copied to the host tier first, and found again there.

Copied ahead of need, so that an eviction waits for nobody: when few blocks of the pool are free, the path to the least
recently used cached block that has no copy yet, as far as a step may well be held up for it. One path is on its way at
a time; its blocks are referenced meanwhile. A hit goes on into the tier, and what lies there comes back with the add.
"""

from dataclasses import replace
from itertools import islice

from libs.contracts.messages import StepResult, Swap
from services.scheduler.choice import Choice
from services.scheduler.prefix import Hit, Run
from services.scheduler.state import State
from services.scheduler.swapped import Resting
from services.scheduler.worker_book import WorkerBook

SHORT_SHARE = 0.25  # of the pool: with fewer free blocks, some are evicted soon
PATH_BLOCKS = 32  # copied at a time, a few milliseconds of a step
LOOK_AT = 64  # cached blocks, the least recently used ones


def rest(state: State) -> None:
    """Have one more path copied, if blocks are short, there is room, and bringing it back beats computing it."""
    pool = state.memory.pool
    if not state.memory.tier.pool.total_blocks or state.resting or pool.free_blocks >= SHORT_SHARE * pool.total_blocks:
        return
    worker = next((worker for worker in state.workers.values() if worker.is_ready and worker.may_send), None)
    block = next((b for b in islice(state.memory.shelves.blocks, LOOK_AT) if b not in state.memory.copied), None)
    if worker is not None and block is not None and _is_worth_it(state, worker, 1):
        _begin(state, worker, block)


def settle(state: State, worker: WorkerBook, result: StepResult) -> None:
    """The report of a version: the path that it copied may be found."""
    resting = state.resting
    if resting is None or resting.incarnation != worker.incarnation or result.version < resting.version:
        return
    copied = sum(done.blocks for done in result.swapped if not done.sequence)
    if copied == len(resting.host_blocks):
        size = state.memory.block_tokens
        state.memory.tier.keep(
            resting.key, resting.known, resting.ids[len(resting.known) * size :], resting.host_blocks
        )
        state.memory.copied.update(resting.blocks)
        state.counts["rested_blocks"] += copied
    _end(state, resting, {})


def stop(state: State, worker: WorkerBook, taken_version: int, until_version: int) -> None:
    """The worker took nothing after `taken_version`, or is lost: what it may still write to, it may until a version."""
    resting = state.resting
    if resting is not None and resting.incarnation == worker.incarnation and resting.version > taken_version:
        _end(state, resting, {worker.incarnation: until_version})


def extend(state: State, choice: Choice, hit: Hit) -> Hit:
    """The hit, with what rests in the tier behind it; without a tail then, which the tier has whole."""
    if choice.keeps_blocks or choice.is_unscored or hit.pending is not None:
        return hit
    path = state.memory.tier.tree.path(choice.key, choice.ids)
    decode = next((worker for worker in state.workers.values() if worker.is_ready), None)
    if len(path) <= len(hit.blocks) or decode is None or not _is_worth_it(state, decode, 0):
        return hit
    return replace(hit, tail=None, rested=tuple(path))


def _is_worth_it(state: State, worker: WorkerBook, outs: int) -> bool:
    rates = state.swap_rates
    return outs * rates.out_s + rates.in_s < state.memory.block_tokens * worker.prefill_rate.token_s


def _begin(state: State, worker: WorkerBook, block: int) -> None:
    memory = state.memory
    run = memory.tree.runs[block]
    ids, blocks = _path(run, run.blocks.index(block) + 1, memory.block_tokens)
    known = tuple(memory.tier.tree.path(run.key, ids))[: len(blocks)]
    depth = min(len(blocks), len(known) + (PATH_BLOCKS if state.swap_rates.outs else 1))  # the first shows how fast
    memory.copied.update(blocks[: len(known)])
    if len(known) == depth:
        return
    memory.tier.reference(known)
    host_blocks = memory.tier.take(depth - len(known))
    if host_blocks is None:
        memory.tier.give_back_all(known, {})
        return
    blocks = blocks[:depth]
    memory.share(Hit(tuple(blocks)))
    version = worker.swap_out(Swap(0, tuple(blocks[len(known) :]), host_blocks))
    ids = ids[: depth * memory.block_tokens]
    state.resting = Resting(worker.incarnation, version, run.key, ids, tuple(blocks), known, host_blocks)


def _end(state: State, resting: Resting, named: dict[str, int]) -> None:
    state.resting = None
    state.memory.tier.give_back_all(resting.host_blocks, named)
    state.memory.tier.give_back_all(resting.known, {})
    state.memory.unshare(Hit(resting.blocks))


def _path(run: Run, blocks: int, block_tokens: int) -> tuple[list[int], list[int]]:
    """Ids and blocks from the root to the first `blocks` of a run."""
    ids, path = run.ids[: blocks * block_tokens], run.blocks[:blocks]
    above = run.parent
    while above is not None:
        ids, path, above = above.ids + ids, above.blocks + path, above.parent
    return ids, path
