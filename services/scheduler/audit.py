"""Invariants of a State. Nothing here is needed to run: tests call it after every event, an operator on demand."""

from collections import Counter
from collections.abc import Iterator

from services.scheduler.audit_tree import audit_tree
from services.scheduler.choice import Choice, Phase
from services.scheduler.state import State
from services.scheduler.worker_book import WorkerBook


def audit(state: State) -> list[str]:
    """What is wrong, one line each; empty when all is well. O(everything)."""
    return [
        *_blocks(state),
        *_host_blocks(state),
        *audit_tree(state),
        *_choices(state),
        *_workers(state),
        *_requests(state),
    ]


def audit_memory(state: State) -> list[str]:
    """What is wrong with blocks and prefixes alone. O(pool)."""
    return [*_blocks(state), *_host_blocks(state), *audit_tree(state)]


def _blocks(state: State) -> Iterator[str]:
    """Each block is free, cached, held or freeing, once, and referenced as often as tables and copies name it."""
    memory, pool = state.memory, state.memory.pool
    used = Counter(block for choice in state.choices.values() for block in choice.table)
    used.update(block for choice in state.choices.values() for block in choice.stake)
    used.update(copy.source for choice in state.choices.values() for copy in choice.copies)
    used.update(tail.block for choice in state.choices.values() for tail in choice.tails)
    used.update(state.resting.blocks if state.resting else ())
    held = set(used)
    if dict(used) != {block: count for block, count in enumerate(pool.references) if count}:
        yield "references differ from the tables"
    free = pool.free()
    if len(free) != len(set(free)):
        yield "a block is free twice"
    parts = (held, set(free), pool.cached, pool.freeing)
    if sum(map(len, parts)) != pool.total_blocks or len(set().union(*parts)) != pool.total_blocks:
        yield f"free, cached, held and freeing do not add up: {[len(part) for part in parts]}"
    if pool.held_blocks != len(held):
        yield f"{pool.held_blocks} blocks count as held, {len(held)} are"
    if pool.cached != set(memory.shelves.blocks):
        yield "cached blocks are not those on the shelves"
    for choice in state.choices.values():
        if len(set(choice.table)) != len(choice.table):
            yield f"{choice.request_id} has a block twice"


def _host_blocks(state: State) -> Iterator[str]:
    """Each block of the tier is one choice's, free, or freeing."""
    pool = state.memory.tier.pool
    choices, resting = state.choices.values(), state.resting
    used = Counter(block for choice in choices if choice.swap_out for block in choice.swap_out.host_blocks)
    used.update(block for choice in choices if choice.swapped for block in choice.swapped.held)
    used.update((*resting.known, *resting.host_blocks) if resting else ())
    if dict(used) != {block: count for block, count in enumerate(pool.references) if count}:
        yield "host blocks are not where their choices say"
    parts = (set(used), set(pool.free()), pool.cached, pool.freeing)
    if sum(map(len, parts)) != pool.total_blocks or len(set().union(*parts)) != pool.total_blocks:
        yield f"host blocks do not add up: {[len(part) for part in parts]}"
    if pool.cached != set(state.memory.tier.shelves.blocks) or not pool.cached <= state.memory.tier.tree.runs.keys():
        yield "prefixes in the host tier are not those that it finds"
    for choice in choices:
        if choice.swap_out is not None and not choice.leaving:
            yield f"{choice.request_id} is on its way to the host tier, but does not leave"
        if choice in state.swapped and choice.swapped is None:
            yield f"{choice.request_id} waits among the swapped, but is not"


def _choices(state: State) -> Iterator[str]:
    for handle, choice in state.choices.items():
        waits = (choice in state.queue) + (choice in state.swapped)
        is_idle = waits > 0 or handle in state.asking
        is_running = handle in state.running
        is_apart = choice.leader is not None or choice.is_dormant
        if (handle in state.asking) + waits + is_running + choice.leaving + is_apart != 1:
            yield f"{choice.request_id} must either ask, wait, run, leave, be about to fork or rest in a search"
        yield from _forks(choice)
        if is_idle:
            yield from _idle(choice, state.memory.block_tokens)
        elif choice.tails:
            yield f"{choice.request_id} runs without the copy of its tail"
        if is_running and choice.phase not in (Phase.PREFILLING, Phase.DECODING):
            yield f"{choice.request_id} runs although {choice.phase}"
        yield from _table(choice, state.memory.block_tokens)
        if choice.chunked < 0:
            yield f"{choice.request_id} has fewer than no chunk tokens under way"
    for handle in state.queue.parked:
        if state.choices[handle].phase is not Phase.WAITING:
            yield f"{handle} is parked but does not wait"


def _forks(choice: Choice) -> Iterator[str]:
    if any(fork.leader is not choice for fork in choice.forks):
        yield f"{choice.request_id} computes for one that does not wait for it"
    if choice.leader is not None and choice not in choice.leader.forks:
        yield f"{choice.request_id} waits for one that does not compute for it"
    if choice.stake and (choice.leader is None or not choice.leader.worker):
        yield f"{choice.request_id} holds a stake in nobody's prompt"


def _table(choice: Choice, block_tokens: int) -> Iterator[str]:
    if choice.cursor > len(choice.table) * block_tokens:
        yield f"{choice.request_id} has committed beyond its table"


def _idle(choice: Choice, block_tokens: int) -> Iterator[str]:
    if choice.worker or choice.phase not in (Phase.WAITING, Phase.ASKING):
        yield f"{choice.request_id} waits but is with a worker"
    if choice.cursor != len(choice.table) * block_tokens:
        yield f"{choice.request_id} keeps blocks that are not committed"


def _workers(state: State) -> Iterator[str]:
    named = Counter(handle for worker in state.workers.values() for handle in worker.residents)
    if set(named) != set(state.running) or any(count > 1 for count in named.values()):
        yield "running choices and residents differ"
    for worker in state.workers.values():
        if not worker.is_lost:
            yield from _worker(worker)
        elif worker.residents or worker.leaving or worker.prefilling or worker.reserved:
            yield f"{worker.name} is lost but has something to do"
    if not state.needy.keys() <= state.running.keys():
        yield "a choice that does not run needs blocks"


def _worker(worker: WorkerBook) -> Iterator[str]:
    if worker.tables() != {handle: tuple(choice.table) for handle, choice in worker.residents.items()}:
        yield f"the order of {worker.name} is not what its residents hold"
    for handle, choice in worker.residents.items():
        if choice.worker != worker.incarnation or choice.leaving:
            yield f"{worker.name} has {choice.request_id}, which thinks it is elsewhere"
        if handle in worker.leaving:
            yield f"{choice.request_id} is in the order of {worker.name} and leaves it"
    for choice, _ in worker.leaving.values():
        if choice.worker != worker.incarnation or not choice.leaving:
            yield f"{choice.request_id} does not know that it leaves {worker.name}"


def _requests(state: State) -> Iterator[str]:
    by_gateway = {request_id for gateway in state.gateways.values() for request_id in gateway.request_ids}
    if by_gateway != set(state.requests):
        yield "requests and those of the gateways differ"
    if not all(gateway.request_ids for gateway in state.gateways.values()):
        yield "a gateway without requests is kept"
    for choice in state.choices.values():
        group = state.requests.get(choice.request_id)
        if choice.phase is not Phase.DROPPED and (group is None or group.choice(choice.index) is not choice):
            yield f"{choice.request_id} is {choice.phase} but no request"
