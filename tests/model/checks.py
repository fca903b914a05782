"""What must hold after every step of the model, and what must be left when all is over."""

import itertools
from collections.abc import Iterator

from libs.engine.worker.held import Held
from services.scheduler import roll_call
from services.scheduler.audit import audit
from services.scheduler.reasons import Reason
from services.scheduler.worker_book import VERSIONS_AHEAD
from tests.model.actors import Gateway, Scheduler
from tests.model.demand import Call
from tests.model.worker import Worker
from tests.model.world import BLOCK_TOKENS, World

UNACCEPTED = ("unavailable", "overloaded")  # nobody could take it
DEATHS_OF_POISON = 3
HEALING_S = 240.0


def check(world: World) -> None:
    problems = [*_writers(world), *_orders(world), *_schedulers(world), *_clients(world)]
    assert not problems, problems


def _writers(world: World) -> Iterator[str]:
    """Nobody writes where somebody else reads or writes, or what the leader takes for unused."""
    holding = [(worker, held) for worker in world.workers for held in worker.held if _may_step(worker, held)]
    for (one, mine), (other, theirs) in itertools.permutations(holding, 2):
        if both := _writable(mine) & set(theirs.table):
            yield f"{one.name} may write {both} for {mine.resident.request_id}, {other.name} may read it"
    leader = leader_of(world)
    if leader is None or leader.state is None or not roll_call.is_complete(leader.state):
        return
    if leader.state.facts is None:
        return
    pool = leader.state.memory.pool
    for worker, held in holding:
        if both := _writable(held) & (set(pool.free()) | pool.cached):
            yield f"{worker.name} may write {both} for {held.resident.request_id}, which are free or cached"


def _may_step(worker: Worker, held: Held) -> bool:
    """What has told the candidates of a search has no token left to compute."""
    advances = held.to_commit > 0 and not held.is_stopped
    return advances or (worker.under_way is not None and held in worker.under_way.held)


def _writable(held: Held) -> set[int]:
    return set(held.table[held.cursor // BLOCK_TOKENS :])


def leader_of(world: World) -> Scheduler | None:
    """Who has the highest term, and is alive."""
    record = world.broker.record
    return next((s for s in world.schedulers if record is not None and s.name == record.scheduler), None)


def _orders(world: World) -> Iterator[str]:
    """Whoever has begun a version has the order that its scheduler means, and few wait behind it."""
    for worker in world.workers:
        residents = worker.residents
        if len(residents._queue) > VERSIONS_AHEAD:
            yield f"{worker.name} has {len(residents._queue)} versions to take"
        for scheduler in world.schedulers:
            state = scheduler.state
            book = None if state is None else state.obeying(worker.incarnation, residents._order_term)
            is_same = book is not None and book._order.version == residents.version
            if book is not None and is_same and book.has_order and book._order.hash != residents._order.hash:
                yield f"{worker.name} and {scheduler.name} differ in version {residents.version}"


def _schedulers(world: World) -> Iterator[str]:
    for scheduler in world.schedulers:
        if scheduler.state is not None:
            yield from (f"{scheduler.name}: {problem}" for problem in audit(scheduler.state))
            if scheduler.state.counts["exactness_violation"]:
                yield f"{scheduler.name} saw two logs that differ"


def _clients(world: World) -> Iterator[str]:
    for call in world.calls.values():
        for index, answer in enumerate(call.answers):
            which, got = f"choice {index} of {call.request_id}", answer.got
            if tuple(got) != answer.ids[: len(got)]:
                yield f"{which} got {got}, not {answer.ids}"
            if call.outcome == "done" and not answer.is_right:
                yield f"{which} ended by {answer.got_reason} after {len(got)}: {answer.reason}, {len(answer.ids)}"
        if call.outcome not in ("", "done", "gone") and not _may_fail(world, call):
            yield f"{call.request_id} failed: {call.outcome}"
    for gateway in world.gateways:
        yield from _logs(world, gateway)


def _logs(world: World, gateway: Gateway) -> Iterator[str]:
    for request_id, stream in gateway.streams.items():
        for choice, answer in zip(stream.choices, world.calls[request_id].answers, strict=True):
            key, ids = (request_id, choice.index), tuple(choice.log.ids)
            if choice.epoch < world.epochs.get(key, 0):
                yield f"{gateway.name} went back to epoch {choice.epoch} of {key}"
            world.epochs[key] = choice.epoch
            if ids != answer.undisturbed[: len(ids)]:
                yield f"{gateway.name} has {ids} of {key}, not {answer.undisturbed}"


def _may_fail(world: World, call: Call) -> bool:
    """Before it was accepted, when its gateway was silent for a second, or when three workers died of it."""
    ended = world.ended + [end for scheduler in world.schedulers for end in scheduler.ended]
    if (call.request_id, Reason.GATEWAY_SILENT.value) in ended:
        return True
    if call.outcome == "poison":
        states = [scheduler.state for scheduler in world.schedulers if scheduler.state is not None]
        given_up = sum(book.is_lost for state in states for book in state.workers.values())  # to be ended by their host
        return world.died.get("Worker", 0) + given_up >= DEATHS_OF_POISON
    return call.outcome in UNACCEPTED and call.is_untouched


def finish(world: World) -> None:
    """Heal everything: in the end nothing is left, and everybody has what they asked for."""
    world.heal()
    end_s = world.now_s + HEALING_S
    while leftovers(world) and world.now_s < end_s:
        world.flow(1.0)
        world.restart()
        check(world)
    assert not leftovers(world), leftovers(world)


NIGHTLY = "nightly"


def leftovers(world: World) -> list[str]:
    """What is still there although everything is over; empty in the end."""
    return [*_open(world), *_kept(world)]


def _open(world: World) -> Iterator[str]:
    yield from (f"{call.request_id} has no end" for call in world.calls.values() if not call.outcome)
    for queue in world.broker.queues.values():
        yield from (f"{queue.name} holds {message.number}" for message in queue.messages.values())
    for gateway in world.gateways:
        yield from (f"{gateway.name} holds {request_id}" for request_id in gateway.hub._streams)
        if gateway.outbox._errands:
            yield f"{gateway.name} has errands"


def _kept(world: World) -> Iterator[str]:
    leader = leader_of(world)
    if leader is None or leader.state is None or world.schedulers != [leader]:
        yield f"{[scheduler.name for scheduler in world.schedulers]} lead"
        return
    state = leader.state
    pool = state.memory.pool
    yield from (f"{group.request_id} is not over" for group in state.requests.values())
    yield from (f"{choice.request_id} has not left: {choice.phase}" for choice in state.choices.values())
    if state.facts is not None and (pool.held_blocks or pool.freeing):
        yield f"{pool.held_blocks} blocks are held, {len(pool.freeing)} freeing"
    if leader.reign.outbox._telling:
        yield f"{leader.name} still tells of {list(leader.reign.outbox._telling)}"
    for worker in world.workers:
        if worker.held or worker.under_way:
            yield f"{worker.name} holds {[held.resident.request_id for held in worker.held]}"
