"""A process of the real model's stack that thaws after others took over: nobody obeys it, and nobody reads what it
writes.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from cli.models import DEFAULT_NAME, cache_root, resolve_model
from libs.contracts.messages import Began
from services.scheduler.block_pool import BlockPool
from services.scheduler.event_log import log_path, read_log
from services.scheduler.plan import turn
from tests.chaos.history import History, Operation
from tests.chaos.lane import FAILPOINT, OPTIONS, Lane
from tests.e2e.pool_view import PoolView
from tests.e2e.survival import Request, requests
from tests.engines import settled

pytestmark = [pytest.mark.e2e, pytest.mark.whole, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

SEEN_TOKENS = 4  # of each stream before anything freezes
SILENT_S = 3.0  # for which the frozen worker tells nobody what it does
KILL_HELD_S = 4.5
SIDE_BY_SIDE_S = 0.5  # below any liveness limit: the one that took over stands still meanwhile
WITHIN_S = 20.0
TOKENS = 160

Answers = tuple[tuple[int, ...], ...]
Streams = tuple[list[Operation], list["asyncio.Task[None]"]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lane]:
    """Two decode workers with the real model in float32, and a scheduler that stands by."""
    folder = tmp_path_factory.mktemp("thaw")
    options = {
        **OPTIONS,
        "model_dir": resolve_model(DEFAULT_NAME, cache_root(), lambda done, total: None),
        "worker_package": "services",
        "kernels": settled("native"),
        "prefill": 0,
        "schedulers": 2,
        "tokenizers": 1,
        "kv_blocks": 256,
        "packed_dir": str(cache_root() / "packed"),
    }
    async with Lane(folder, "hybrid", options).opened() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def answers(lane: Lane) -> Answers:
    """What each stream of the load gives when nothing happens; as far as the reference library went, its ids."""
    operations, streams = _begin(lane)
    await asyncio.gather(*streams)
    for operation, request in zip(operations, _load(), strict=True):
        assert operation.outcome == "ok", operation.error
        assert request.ids and operation.ids[: len(request.ids)] == request.ids
    return tuple(operation.ids for operation in operations)


async def test_a_thawed_worker_writes_where_nobody_reads(lane: Lane, answers: Answers) -> None:
    """The Kill is held back, and it does not read that it is fenced: it steps on beside the one that took over.

    Meanwhile that one stands still, so whatever changes in the pool was written by the thawed one: only blocks that
    no table holds, no prefix of the tree is in and nobody may be granted.
    """
    frozen, other = lane.pids("decode_worker")
    [supervisor] = lane.pids("supervisor")
    pool, log = PoolView(supervisor), await _log(lane)
    operations, streams = await _under_way(lane)
    lane.arm(f"{frozen} worker.frame.after=delay:{SILENT_S}", f"{supervisor} host.kill.received=delay:{KILL_HELD_S}")
    await _until(lambda: any(event.get("event") == FAILPOINT for event in lane.new_log_events()))
    lane.signal(frozen, signal.SIGSTOP)
    struck = [len(operation.ids) for operation in operations]
    await _until(lambda: _have_news(operations, struck))
    lane.signal(other, signal.SIGSTOP)
    before, logged = pool.copy(), log.read_bytes()
    lane.signal(frozen, signal.SIGCONT)
    await asyncio.sleep(SIDE_BY_SIDE_S)
    after = pool.copy()
    lane.signal(other, signal.SIGCONT)
    await asyncio.gather(*streams)
    lane.disarm()

    changed, held = set(pool.changed(before, after)), _blocks(logged)
    assert changed, "it stepped on"
    assert changed <= held.freeing, f"{changed - held.freeing} were somebody else's"
    _check(operations, answers)
    await _until(lambda: frozen not in lane.pids("decode_worker"))


async def test_with_kill_a_frozen_worker_never_thaws(lane: Lane, answers: Answers) -> None:
    """Nobody wakes it, and it is gone before its streams end elsewhere."""
    await _ready(lane)
    operations, streams = await _under_way(lane)
    frozen = lane.pids("decode_worker")[0]
    lane.signal(frozen, signal.SIGSTOP)
    await _until(lambda: frozen not in lane.pids("decode_worker"))
    await asyncio.gather(*streams)
    _check(operations, answers)


async def test_of_two_schedulers_workers_obey_one(lane: Lane, answers: Answers) -> None:
    """The leader freezes and thaws under its successor: every version that a worker took since is the successor's."""
    await _ready(lane)
    operations, streams = await _under_way(lane)
    frozen = await _leader(lane)
    lane.signal(frozen, signal.SIGSTOP)
    while await _leader(lane) in (frozen, 0):
        await asyncio.sleep(0.05)
    log = await _log(lane)
    await _until(lambda: bool(_begun(log)))
    lane.signal(frozen, signal.SIGCONT)
    await asyncio.gather(*streams)
    await _until(lambda: frozen not in lane.pids("scheduler"))

    _check(operations, answers)
    begun = _begun(log)
    assert {each.term for each in begun} == {await _term(lane)}
    for incarnation in {each.incarnation for each in begun}:
        versions = [each.version for each in begun if each.incarnation == incarnation]
        assert all(later == version + 1 for version, later in pairwise(versions)), versions


def _load() -> list[Request]:
    """Greedy and sampled ones, each of which takes longer than it takes to find a frozen process."""
    return requests()[::2]


def _begin(lane: Lane) -> Streams:
    history = History("thaw")
    for each in _load():
        params = replace(each.params, max_tokens=TOKENS)
        history.invoke(each.prompt_ids, params, time.monotonic())
    pairs = zip(history.operations, _load(), strict=True)
    return history.operations, [asyncio.create_task(lane.perform(operation, each.more)) for operation, each in pairs]


async def _under_way(lane: Lane) -> Streams:
    """Streams of which each has some tokens and most are still to come."""
    operations, streams = _begin(lane)
    await _until(lambda: all(len(operation.ids) >= SEEN_TOKENS for operation in operations))
    return operations, streams


def _check(operations: list[Operation], answers: Answers) -> None:
    for operation, ids in zip(operations, answers, strict=True):
        assert operation.outcome == "ok", operation.error
        assert operation.ids == ids


def _have_news(operations: list[Operation], struck: list[int]) -> bool:
    counts = zip(operations, struck, strict=True)
    return all(len(operation.ids) > count + 1 or operation.endings for operation, count in counts)


def _blocks(logged: bytes) -> BlockPool:
    """What the scheduler knows of every block, by the events that it has taken in so far."""
    state, turns = read_log(logged.splitlines(keepends=True))
    for taken, _ in turns:
        turn(state, taken.events, taken.now_s)
    return state.memory.pool


def _begun(log: Path) -> list[Began]:
    """What the present leader has heard of versions taken."""
    _, turns = read_log(log.read_bytes().splitlines(keepends=True))
    return [event for taken, _ in turns for event in taken.events if isinstance(event, Began)]


async def _leader(lane: Lane) -> int:
    """The process that leads in the highest term of those that answer; 0 when none does."""
    answers = await lane.answers()
    return max(((cell.term, each.pid) for each in answers.values() for cell in each.cells), default=(0, 0))[1]


async def _log(lane: Lane) -> Path:
    """Where the leader writes down what it takes in."""
    return log_path(str(lane.run_dir.logs / "events.jsonl"), await _term(lane))


async def _term(lane: Lane) -> int:
    return max(cell.term for each in (await lane.answers()).values() for cell in each.cells)


async def _ready(lane: Lane) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not ((status := await lane.status()) and status.ready):
            await asyncio.sleep(0.05)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)
