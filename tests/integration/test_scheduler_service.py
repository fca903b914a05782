"""The scheduler process on real brokers and a real link, with workers on a fake engine: from the queue to the end."""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from libs.contracts import codec, flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import (
    Alive,
    Cancel,
    CellStatus,
    ControlMessage,
    Delivered,
    Done,
    Failed,
    Finished,
    FrameRow,
    Gone,
    Known,
    Resend,
    Resent,
    Sequence,
    ServiceStatus,
    StatusQuery,
    TokenFrame,
)
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.link_client import CellLeader
from libs.engine.worker.serve import Role, Worker
from tests.fakes.engine import FakeEngine, FakePool, expected, fake_loaded
from tests.integration.servers import NatsServer, ValkeyServer
from tests.unit.scheduler.cell import params, prompt

pytestmark = pytest.mark.integration

PATIENCE_S = 10.0
TOKEN = "link-token"
ROOT = Path(__file__).parents[2]
ROLES = {
    "prefill": Role("prefill_worker", "prefill", flow.PREFILL),
    "decode": Role("decode_worker", "decode", flow.DECODE),
}


class Stage:
    """A broker, a scheduler process, workers of this process, and a gateway of the test's own."""

    def __init__(self, server: NatsServer, valkey: ValkeyServer, folder: Path) -> None:
        self.model, self.gateway = f"model-{secrets.token_hex(4)}", f"g-{secrets.token_hex(4)}"
        self.rows: list[FrameRow] = []
        self.replies: asyncio.Queue[Finished | Failed] = asyncio.Queue()
        self.killed: asyncio.Queue[str] = asyncio.Queue()
        self.pool = FakePool(64)
        self.workers: list[tuple[Worker, asyncio.Task[None], asyncio.Event]] = []
        self._server, self._valkey, self._folder, self._open = server, valkey, folder, AsyncExitStack()

    async def open(self, role: str) -> None:
        self._bus = await self._open.enter_async_context(self._server.connect("gateway"))
        self._tokenizer = await self._open.enter_async_context(self._server.connect("tokenizer"))
        agent = await self._open.enter_async_context(self._server.connect("supervisor"))
        await self._bus.subscribe(flow.tokens_subject(self.gateway), self._hear)
        await self._bus.serve(flow.replies_subject(self.gateway), self._reply)
        await agent.serve(flow.host_subject("local"), self._kill)
        self.process = self._start(role)
        self._open.callback(_end, self.process)
        beating = asyncio.create_task(self._beat())
        self._open.callback(beating.cancel)

    async def close(self) -> None:
        for _, running, stop in self.workers:
            stop.set()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await running
        await self._open.aclose()

    def restart(self, role: str) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start(role)
        self._open.callback(_end, self.process)

    async def worker(self, role: str) -> None:
        bus = await self._open.enter_async_context(self._server.connect(ROLES[role].service))
        config = WorkerConfig(
            model=self.model, model_dir=self._folder, pool="unused", link_token=SecretStr(TOKEN), instance=f"{role}-0"
        )
        leader = CellLeader(await bus.cells(), self.model, "c0")
        worker, stop = (
            Worker(
                config,
                ROLES[role],
                fake_loaded(self.pool, FakeEngine(self.pool, before_step=lambda rows: time.sleep(0.01))),
                bus,
                leader,
            ),
            asyncio.Event(),
        )
        self.workers.append((worker, asyncio.create_task(worker.run(stop, 1.0)), stop))

    async def ready(self) -> None:
        """Until the scheduler says that it can serve."""
        async with self._server.connect("supervisor") as bus:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with contextlib.suppress(Unavailable):
                        answer = await bus.request(flow.STATUS_SUBJECT, b"", timeout_s=0.2)
                        if codec.decode(ServiceStatus, answer).ready:
                            return
                    await asyncio.sleep(0.02)

    async def submit(self, request_id: str, ids: tuple[int, ...], max_tokens: int = 30) -> None:
        deadline = int((time.time() + 60) * 1000)
        sequence = Sequence(request_id, 1, self.gateway, self.model, "t", ids, (), params(max_tokens), 1, deadline)
        subject = flow.sequences_subject(self.model, "c0")
        await self._tokenizer.enqueue(subject, codec.encode(sequence), message_id=f"{request_id}:1:sequence")

    async def finished(self) -> Finished:
        async with asyncio.timeout(PATIENCE_S):
            message = await self.replies.get()
        assert isinstance(message, Finished), message
        return message

    async def ask(self, message: ControlMessage) -> bytes:
        payload = codec.encode_in("ControlMessage", message)
        return await self._bus.request(flow.control_subject("c0"), payload, timeout_s=2.0)

    async def status(self) -> CellStatus:
        return codec.decode(CellStatus, await self.ask(StatusQuery()))

    async def stored_sequences(self) -> int:
        async with self._server.connect("admin") as bus:
            info = await bus._js.stream_info(flow.SEQUENCES_STREAM)
        return int(info.state.messages)

    def ids(self, request_id: str) -> tuple[int, ...]:
        log = {row.position: row.ids[0] for row in self.rows if row.request_id == request_id and row.ids}
        return tuple(log[position] for position in sorted(log))

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        settings = {
            "nats_url": self._server.url,
            "nats_user": "scheduler",
            "nats_password": self._server.passwords["scheduler"],
            "redis_url": self._valkey.url,
            "redis_user": "scheduler",
            "redis_password": self._valkey.passwords["scheduler"],
            "model": self.model,
            "link_token": TOKEN,
            "role": role,
            "log_format": "text",
        }
        env = {f"HR_SCHEDULER_{name.upper()}": value for name, value in settings.items()}
        return subprocess.Popen([sys.executable, "-m", "services.scheduler"], cwd=ROOT, env={"PATH": os.defpath, **env})

    async def _beat(self) -> None:
        while True:
            await self._bus.publish(flow.alive_subject(self.gateway), codec.encode(Alive(self.gateway)))
            await asyncio.sleep(flow.ALIVE_INTERVAL_S)

    def _hear(self, payload: bytes, traceparent: str) -> None:
        self.rows += codec.decode(TokenFrame, payload).rows

    async def _reply(self, payload: bytes, traceparent: str) -> bytes:
        self.replies.put_nowait(codec.decode_in("RepliesMessage", payload))
        return codec.encode(Known(True))

    async def _kill(self, payload: bytes, traceparent: str) -> bytes:
        incarnation = codec.decode_in("HostMessage", payload).incarnation
        self.killed.put_nowait(incarnation)
        return codec.encode_in("HostReply", Gone(incarnation))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(10)


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


async def test_a_lost_worker_is_killed_and_its_request_fails(stage: Stage) -> None:
    """Its host is asked for the kill, its gateway hears the typed error."""
    await stage.open("hybrid")
    await stage.worker("decode")
    await stage.ready()
    await stage.submit("r1", prompt(40), 100000)
    async with asyncio.timeout(PATIENCE_S):
        while not stage.ids("r1"):
            await asyncio.sleep(0.01)
    stage.workers[0][2].set()
    async with asyncio.timeout(PATIENCE_S):
        killed = await stage.killed.get()
        failed = await stage.replies.get()
    assert len(killed) == 32
    assert isinstance(failed, Failed) and failed.error.code == "worker_lost"


async def test_a_restarted_scheduler_gives_the_same_tokens(stage: Stage) -> None:
    """Killed in the middle of a stream: the request is still in its queue, and the next term generates it again."""
    await stage.open("hybrid")
    await stage.worker("decode")
    await stage.ready()
    await stage.submit("r1", prompt(40), 300)
    async with asyncio.timeout(PATIENCE_S):
        while len(stage.ids("r1")) < 30:
            await asyncio.sleep(0.01)
    stage.restart("hybrid")
    finished = await stage.finished()
    assert stage.ids("r1") == expected(prompt(40), params(300))[0]
    assert (finished.total, finished.term) == (300, 2)
    assert codec.decode(Done, await stage.ask(Delivered("r1", (300,)))).known
    await asyncio.sleep(0.1)
    assert await stage.stored_sequences() == 0
