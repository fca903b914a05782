"""Faults of the catalogue, one by one, on a stack with the fake engine: nobody's stream breaks, nothing is left."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
import pytest_asyncio

from tests.chaos.faults import longest_stall_s, strike
from tests.chaos.lane import OPTIONS, Lane

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(200), pytest.mark.asyncio(loop_scope="module")]

STALL_S = 3.0
GONE_WITHIN_S = 60.0  # a bound for what hangs; how soon streams go on is STALL_S
LONG = 1200  # tokens of a stream that outlasts any drain


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lane]:
    """Two of each kind; blocks for everything that is asked."""
    options = {**OPTIONS, "prefill": 2, "schedulers": 2, "kv_blocks": 2048}
    async with Lane(tmp_path_factory.mktemp("faults"), "auto", options).opened() as running:
        yield running


async def ended(lane: Lane, pids: Sequence[int]) -> None:
    """Until the supervisor knows that these are gone, and others are in their place."""
    before = len(lane.state().children)
    async with asyncio.timeout(GONE_WITHIN_S):
        while {child.pid for child in lane.state().children} & {0, *pids} or len(lane.state().children) != before:
            await asyncio.sleep(0.02)


async def attached(lane: Lane) -> None:
    """Until every process is ready again."""
    async with asyncio.timeout(GONE_WITHIN_S):
        while not ((status := await lane.status()) and status.ready):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("service", ["decode_worker", "prefill_worker", "tokenizer", "scheduler"])
async def test_one_process_of_a_kind_is_killed(lane: Lane, service: str) -> None:
    """F01, F07, F20, F23: nobody waits for long, and no KV that was there is computed again."""
    before = await recomputed(lane)

    async def kill() -> None:
        lane.signal(lane.pids(service)[0], signal.SIGKILL)

    history = await strike(lane, f"kill-{service}", kill)
    assert longest_stall_s(history) < STALL_S
    assert await recomputed(lane) == before or service == "scheduler", "a new one counts from 0"


async def test_all_decode_workers_die_at_once(lane: Lane) -> None:
    """F16: requests wait for the first that is there again."""

    async def kill() -> None:
        for pid in lane.pids("decode_worker"):
            lane.signal(pid, signal.SIGKILL)

    await strike(lane, "kill-all-decode", kill)


async def test_the_one_that_takes_over_dies_too(lane: Lane) -> None:
    """F17: two deaths one after the other."""

    async def kill_both() -> None:
        first, second = lane.pids("decode_worker")
        lane.signal(first, signal.SIGKILL)
        await asyncio.sleep(0.2)
        lane.signal(second, signal.SIGKILL)

    await strike(lane, "kill-takeover", kill_both)


async def test_every_worker_is_restarted_in_turn(lane: Lane) -> None:
    """F18: each is told to stop while streams run; they go on elsewhere, in the same epoch, and nothing is lost."""
    before = await moved(lane)

    async def roll() -> None:
        for pid in (*lane.pids("decode_worker"), *lane.pids("prefill_worker")):
            lane.signal(pid, signal.SIGTERM)
            await ended(lane, [pid])
            await attached(lane)

    history = await strike(lane, "rolling-restart", roll, tokens=400)
    assert longest_stall_s(history) < STALL_S
    assert await moved(lane) == before, "each worker confirmed what it gave away"


async def test_of_two_leaders_one_is_obeyed(lane: Lane) -> None:
    """F21: the leader freezes, the one that stands by leads, and the frozen one ends when it thaws."""

    async def freeze_and_thaw() -> None:
        frozen = await leader(lane)
        lane.signal(frozen, signal.SIGSTOP)
        async with asyncio.timeout(GONE_WITHIN_S):
            while await leader(lane) in (frozen, 0):
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        lane.signal(frozen, signal.SIGCONT)
        await ended(lane, [frozen])

    history = await strike(lane, "two-leaders", freeze_and_thaw, tokens=300)
    assert longest_stall_s(history) < STALL_S


async def test_a_dead_gateways_requests_are_cancelled(lane: Lane) -> None:
    """F24: within about a second nobody computes for it any more; its clients see closed connections."""

    async def kill() -> None:
        lane.signal(lane.pids("gateway")[0], signal.SIGKILL)
        struck_s = time.monotonic()
        async with asyncio.timeout(GONE_WITHIN_S):
            while not ((status := await lane.status()) and not (status.running or status.waiting)):
                await asyncio.sleep(0.05)
        assert time.monotonic() - struck_s < STALL_S

    await strike(lane, "kill-gateway", kill, tokens=LONG, may_fail=True)
    await attached(lane)


async def test_a_gateway_told_to_stop_finishes_its_streams(lane: Lane) -> None:
    """F25: it says at once that it leaves, goes on living, and ends with code 0 after the last stream."""
    seen: dict[str, int] = {}

    async def stop() -> None:
        [gateway] = lane.pids("gateway")
        base = lane.base_url.removesuffix("/v1")
        async with httpx.AsyncClient() as http:
            lane.signal(gateway, signal.SIGTERM)
            async with asyncio.timeout(1.0):
                while (await http.get(f"{base}/ready")).status_code != 503:
                    await asyncio.sleep(0.01)
            for path in ("health", "live"):
                seen[path] = (await http.get(f"{base}/{path}")).status_code
        await ended(lane, [gateway])

    await strike(lane, "stop-gateway", stop, tokens=60)
    assert seen == {"health": 503, "live": 200}
    assert ended_by(lane, "gateway-0") == "exit code 0"
    await attached(lane)


@pytest.mark.parametrize(("signals", "how"), [(1, "exit code 0"), (2, "exit code 130")])
async def test_a_stream_longer_than_the_drain_ends_with_a_clean_error(lane: Lane, signals: int, how: str) -> None:
    """F26, F27: an error event after what was sent; a second signal does not wait for anything."""

    async def stop() -> None:
        [gateway] = lane.pids("gateway")
        for _ in range(signals):
            lane.signal(gateway, signal.SIGTERM)
            await asyncio.sleep(0.3)
        await ended(lane, [gateway])

    history = await strike(lane, f"stop-gateway-{signals}", stop, tokens=LONG, may_fail=True)
    if signals == 1:
        assert all("shutting down" in operation.error for operation in history.operations)
    assert ended_by(lane, "gateway-0") == how
    await attached(lane)


async def test_a_supervisor_told_twice_leaves_no_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    """F27: at once, and its children with it."""
    async with Lane(tmp_path_factory.mktemp("twice"), "hybrid").opened() as lane:
        children = [child.pid for child in lane.state().children]
        [supervisor] = lane.pids("supervisor")
        lane.signal(supervisor, signal.SIGTERM)
        await asyncio.sleep(0.05)
        started_s = time.monotonic()
        lane.signal(supervisor, signal.SIGTERM)
        while lane.alive or any(alive(pid) for pid in children):
            await asyncio.sleep(0.01)
        assert time.monotonic() - started_s < 1.0


async def test_a_frozen_worker_that_thaws_before_its_end_touches_nothing(lane: Lane) -> None:
    """The Kill is held back: its work has moved, it wakes, and no token and no block of another is touched."""

    async def freeze_and_thaw() -> None:
        frozen = lane.pids("decode_worker")[0]
        [supervisor] = lane.pids("supervisor")
        lane.arm(f"{supervisor} host.kill.received=delay:3")
        lane.signal(frozen, signal.SIGSTOP)
        before = await moved(lane)
        async with asyncio.timeout(GONE_WITHIN_S):
            while await moved(lane) == before:
                await asyncio.sleep(0.05)
        lane.signal(frozen, signal.SIGCONT)
        await ended(lane, [frozen])
        lane.disarm()

    await strike(lane, "freeze-decode-worker", freeze_and_thaw, tokens=300)


async def leader(lane: Lane) -> int:
    """The process that leads the cell in the highest term of those that answer; 0 when none does."""
    answers = await lane.answers()
    leading = [(cell.term, answer.pid) for answer in answers.values() for cell in answer.cells]
    return max(leading, default=(0, 0))[1]


async def recomputed(lane: Lane) -> int:
    status = await lane.status()
    return status.recomputed_tokens if status else -1


async def moved(lane: Lane) -> int:
    status = await lane.status()
    return status.moved_sequences if status else -1


def ended_by(lane: Lane, program: str) -> str:
    """How the supervisor says that a program's last life ended."""
    return str([event["how"] for event in lane.supervisor_events() if event.get("program") == program][-1])


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
