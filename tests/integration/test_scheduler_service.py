"""The scheduler process on real brokers and a real link, with workers on a fake engine: from the queue to the end."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts import codec
from libs.contracts.messages import Cancel, Delivered, Done, Resend, Resent
from tests.fakes.engine import expected
from tests.integration.scheduler_stage import PATIENCE_S, Stage
from tests.integration.servers import NatsServer, ValkeyServer
from tests.unit.scheduler.cell import params, prompt

pytestmark = pytest.mark.integration


@pytest.fixture
async def stage(own_nats_server: NatsServer, valkey_server: ValkeyServer, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(own_nats_server, valkey_server, tmp_path)
    try:
        yield stage
    finally:
        await stage.close()


@pytest.mark.parametrize("role", ["hybrid", "disaggregated"])
async def test_a_request_runs_from_its_queue_to_its_acknowledgement(stage: Stage, role: str) -> None:
    """The tokens are those of the plain generator, the log has them all, and delivery empties the queue."""
    await stage.open(role)
    await stage.worker("prefill")
    await stage.worker("decode")
    await stage.ready()
    await stage.submit("r1", prompt(40))

    finished = await stage.finished()
    resent = codec.decode(Resent, await stage.ask(Resend("r1", 0, 0)))
    assert stage.ids("r1") == resent.ids == expected(prompt(40), params(30))[0]
    assert (finished.total, finished.reason, resent.end) == (30, "length", "length")
    assert await stage.stored_sequences() == 1

    assert codec.decode(Done, await stage.ask(Delivered("r1", (30,)))).known
    await asyncio.sleep(0.1)
    assert await stage.stored_sequences() == 0
    status = await stage.status()
    assert (status.running, status.waiting, status.blocks_held, status.blocks_freeing) == (0, 0, 0, 0)
    assert status.blocks_cached > 0


async def test_a_cancelled_request_leaves_nothing(stage: Stage) -> None:
    """No block and no message, once its worker has confirmed."""
    await stage.open("hybrid")
    await stage.worker("decode")
    await stage.ready()
    await stage.submit("r1", prompt(40), 900)
    async with asyncio.timeout(PATIENCE_S):
        while not stage.ids("r1"):
            await asyncio.sleep(0.01)
    assert codec.decode(Done, await stage.ask(Cancel("r1", 0))).known
    await asyncio.sleep(0.2)
    status = await stage.status()
    assert (status.running, status.blocks_held, status.blocks_freeing) == (0, 0, 0)
    assert await stage.stored_sequences() == 0


async def test_a_worker_that_leaves_gives_its_request_to_the_next(stage: Stage) -> None:
    """It ends by itself as soon as it has nothing left; another worker gives the rest of the same tokens."""
    await stage.open("hybrid")
    await stage.worker("decode")
    await stage.ready()
    await stage.submit("r1", prompt(40), 300)
    async with asyncio.timeout(PATIENCE_S):
        while len(stage.ids("r1")) < 30:
            await asyncio.sleep(0.01)
    _, running, stop = stage.workers[0]
    stop.set()
    async with asyncio.timeout(PATIENCE_S):
        await running
    before = len(stage.ids("r1"))
    assert before < 300
    await stage.worker("decode")
    assert (await stage.finished()).total == 300
    assert stage.killed.empty()
    assert (await stage.status()).recomputed_tokens == 0
    assert stage.ids("r1") == expected(prompt(40), params(300))[0]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize(
    ("role", "victim"), [("hybrid", "decode"), ("disaggregated", "decode"), ("disaggregated", "prefill")]
)
async def test_streams_survive_a_killed_and_a_frozen_worker(
    stage: Stage, role: str, victim: str, how: signal.Signals
) -> None:
    """Eight streams, four begun before: each has the tokens of an undisturbed run, and no block is lost."""
    await stage.open(role)
    others = ["decode"] if role == "hybrid" else ["decode", "prefill"]
    lost, *_ = [stage.spawn(worker) for worker in (victim, *others)]
    await stage.attached(victim, *others)
    names = [f"r{index}" for index in range(8)]
    prompts = [prompt(20 + 7 * index, 100 + 31 * index) for index in range(8)]
    for name, ids in zip(names[:4], prompts[:4], strict=True):
        await stage.submit(name, ids, 60)
    async with asyncio.timeout(PATIENCE_S):
        while min(len(stage.ids(name)) for name in names[:2]) < 10:
            await asyncio.sleep(0.005)
    stage.processes[lost].send_signal(how)
    for name, ids in zip(names[4:], prompts[4:], strict=True):
        await stage.submit(name, ids, 60)
    totals = [(await stage.finished()).total for _ in names]

    assert totals == [60] * 8
    for name, ids in zip(names, prompts, strict=True):
        assert stage.ids(name) == expected(ids, params(60))[0]
        assert codec.decode(Done, await stage.ask(Delivered(name, (60,)))).known
    async with asyncio.timeout(PATIENCE_S):
        assert await stage.killed.get() == lost
    await asyncio.sleep(0.1)
    status = await stage.status()
    assert (status.running, status.waiting, status.blocks_held, status.blocks_freeing) == (0, 0, 0, 0)
    assert await stage.stored_sequences() == 0
    assert stage.stall_s() < 3.0


async def test_a_restarted_scheduler_gives_the_same_tokens(stage: Stage) -> None:
    """Killed in the middle of a stream: the request is still in its queue, and the next term generates it again."""
    await stage.open("hybrid")
    await stage.worker("decode")
    await stage.ready()
    await stage.submit("r1", prompt(40), 300)
    async with asyncio.timeout(PATIENCE_S):
        while len(stage.ids("r1")) < 30:
            await asyncio.sleep(0.01)
    first = (await stage.status()).term
    stage.restart("hybrid")
    finished = await stage.finished()
    assert stage.ids("r1") == expected(prompt(40), params(300))[0]
    assert finished.total == 300 and finished.term > first
    assert codec.decode(Done, await stage.ask(Delivered("r1", (300,)))).known
    await asyncio.sleep(0.1)
    assert await stage.stored_sequences() == 0
