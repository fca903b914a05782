"""A profile of a running step thread: asked for from the event loop, taken between two steps."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from libs.contracts.messages import Chunk, WorkerProfile
from libs.engine.rows import Sampled, StepRow
from libs.engine.worker.laps import AWAIT_ORDER, IDLE, Laps
from libs.engine.worker.profiler import Profiler
from libs.engine.worker.residents import Residents
from libs.engine.worker.step_thread import Post, StepThread
from tests.fakes.engine import EOS_IDS, VOCAB_SIZE, FakeEngine, FakePool
from tests.unit.worker.orders import BLOCK_TOKENS, IDENTITY, Orders, prompt, resident

STEP_S = 0.002
ROUNDING = 1e-9


class SlowEngine(FakeEngine):
    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        time.sleep(STEP_S)
        return super().step(rows)


@asynccontextmanager
async def profiled() -> AsyncIterator[tuple[Profiler, StepThread, Orders]]:
    pool = FakePool(IDENTITY.pool_blocks, BLOCK_TOKENS)
    residents = Residents(
        IDENTITY, eos_ids=EOS_IDS, vocab_size=VOCAB_SIZE, block_tokens=BLOCK_TOKENS, fill_counts=pool.fill_counts_N
    )
    laps, posts, orders = Laps(time.monotonic_ns), list[Post](), Orders()
    thread = StepThread(residents, SlowEngine(pool), pool, posts.append, laps)
    thread.send(orders.snapshot())
    thread.start()
    try:
        yield Profiler("decode-1", thread, laps), thread, orders
    finally:
        thread.stop()
        assert await asyncio.to_thread(thread.join, 5.0)


def shares(profile: WorkerProfile) -> dict[str, float]:
    return {lap.path: lap.lap_ns / profile.duration_ns for lap in profile.laps}


async def test_a_worker_without_guests_is_idle() -> None:
    """All of the time that was asked for, but a boundary's."""
    async with profiled() as (profiler, _, _):
        profile = await profiler.profile(0.1)

    assert profile.worker == "decode-1" and profile.steps == 0
    assert 0.09e9 < profile.duration_ns < 1e9
    assert shares(profile)[IDLE] > 0.9


async def test_the_parts_of_a_busy_worker_add_up_to_its_time() -> None:
    """Told by name; what it waits for when its grant is used up is the scheduler."""
    async with profiled() as (profiler, thread, orders):
        asked = asyncio.create_task(profiler.profile(0.2))
        await asyncio.sleep(0)
        thread.send(orders.delta(added=(resident(1, prompt(10), (0,)),), chunks=(Chunk(1, 10),)))
        profile = await asked

    parts = shares(profile)
    assert 0.95 < sum(parts.values()) <= 1.0 + ROUNDING
    assert (profile.steps, profile.batch_tokens) == (1 + BLOCK_TOKENS - 10, BLOCK_TOKENS)
    assert parts["kernels"] * profile.duration_ns >= profile.steps * STEP_S * 1e9
    assert parts[AWAIT_ORDER] > 0.3 and parts.keys() >= {"python;rows", "python;absorb", "link;orders", "link;reports"}


async def test_who_asks_meanwhile_gets_a_profile_of_its_own() -> None:
    """One after the other: there is one set of laps."""
    async with profiled() as (profiler, _, _):
        one, other = await asyncio.gather(profiler.profile(0.05), profiler.profile(0.05))

    assert one.duration_ns > 0.04e9 and other.duration_ns > 0.04e9


async def test_a_profile_that_nobody_waits_for_any_more_ends() -> None:
    """The steps are not watched for ever, and the next one can be asked for."""
    async with profiled() as (profiler, _, _):
        asked = asyncio.create_task(profiler.profile(60))
        await asyncio.sleep(0.02)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

        assert (await profiler.profile(0.02)).duration_ns < 10e9
