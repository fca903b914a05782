"""A broker, a scheduler process, workers here or in processes of their own; gateway and host are the test's own."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

from pydantic import SecretStr

from libs.contracts import codec, flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import (
    Alive,
    CellStatus,
    ChoiceLog,
    ControlMessage,
    EpochRaised,
    Failed,
    Finished,
    FrameRow,
    Gone,
    Incarnations,
    Kill,
    Known,
    LogQuery,
    Logs,
    RequestLog,
    Sequence,
    ServiceStatus,
    StatusQuery,
    TokenFrame,
)
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.link_client import CellLeader
from libs.engine.worker.serve import Worker
from tests.fakes.engine import FakeEngine, FakePool, fake_loaded
from tests.integration.fake_worker import ROLES, TOKEN
from tests.integration.servers import NatsServer, ValkeyServer
from tests.unit.scheduler.cell import params

PATIENCE_S = 10.0
ROOT = Path(__file__).parents[2]


class Stage:
    """The host kills workers that are processes; those of this process it merely calls gone."""

    def __init__(self, server: NatsServer, valkey: ValkeyServer, folder: Path) -> None:
        self.model, self.gateway = f"model-{secrets.token_hex(4)}", f"g-{secrets.token_hex(4)}"
        self.logs: dict[str, dict[int, FrameRow]] = defaultdict(dict)
        self.heard_s: dict[str, list[float]] = defaultdict(list)
        self.epochs: dict[str, int] = defaultdict(lambda: 1)
        self.replies: asyncio.Queue[Finished | Failed] = asyncio.Queue()
        self.killed: asyncio.Queue[str] = asyncio.Queue()
        self.pool = FakePool(64)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}  # by incarnation, as long as they live
        self.workers: list[tuple[Worker, asyncio.Task[None], asyncio.Event]] = []
        self._server, self._valkey, self._folder, self._open = server, valkey, folder, AsyncExitStack()

    async def open(self, role: str) -> None:
        self._bus = await self._open.enter_async_context(self._server.connect("gateway"))
        self._tokenizer = await self._open.enter_async_context(self._server.connect("tokenizer"))
        agent = await self._open.enter_async_context(self._server.connect("supervisor"))
        await self._bus.subscribe(flow.tokens_subject(self.gateway), self._hear)
        await self._bus.serve(flow.replies_subject(self.gateway), self._reply)
        await agent.serve(flow.host_subject("local"), self._host)
        self.process = self._start(role)
        self._open.callback(_end, self.process)
        beating = asyncio.create_task(self._beat())
        self._open.callback(beating.cancel)

    async def close(self) -> None:
        for _, running, stop in self.workers:
            stop.set()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await running
        for process in self.processes.values():
            process.kill()
            process.wait()
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

    def spawn(self, role: str, *, step_s: float = 0.01) -> str:
        """A worker process; its incarnation."""
        incarnation = secrets.token_hex(16)
        service = ROLES[role].service
        settings = {
            "role": role,
            "model": self.model,
            "pool": str(self._folder / "pool"),
            "step_s": str(step_s),
            "instance": f"{role}-{incarnation[:4]}",
            "incarnation": incarnation,
            "nats_url": self._server.url,
            "nats_password": self._server.passwords[service],
        }
        command = [sys.executable, "-m", "tests.integration.fake_worker", json.dumps(settings)]
        self.processes[incarnation] = subprocess.Popen(command, cwd=ROOT, env={"PATH": os.defpath})
        return incarnation

    async def attached(self, *roles: str) -> None:
        """Until so many workers of these roles are there."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(Unavailable):
                    workers = (await self.status()).workers
                    if sorted(name.partition("-")[0] for name in workers) == sorted(roles):
                        return
                await asyncio.sleep(0.02)

    def stall_s(self) -> float:
        """The longest time without a token, of any request."""
        return max(after - before for heard in self.heard_s.values() for before, after in pairwise(heard))

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
        log = self.logs[request_id]
        return tuple(log[position].ids[0] for position in range(len(log)) if position in log)

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
        for row in codec.decode(TokenFrame, payload).rows:
            if row.epoch < self.epochs[row.request_id]:
                continue
            self.epochs[row.request_id] = row.epoch
            if row.ids:
                self.heard_s[row.request_id].append(time.monotonic())
                known = self.logs[row.request_id].setdefault(row.position, row)
                assert known.ids == row.ids, "a delivered token changed"

    async def _reply(self, payload: bytes, traceparent: str) -> bytes:
        message = codec.decode_in("RepliesMessage", payload)
        match message:
            case EpochRaised():
                epochs = [raised.epoch for raised in message.choices]
                self.epochs[message.request_id] = max(*epochs, self.epochs[message.request_id])
                return codec.encode(Logs((self._log(message.request_id),)))
            case LogQuery():
                return codec.encode(Logs(tuple(self._log(request_id) for request_id in message.request_ids)))
        self.replies.put_nowait(message)
        return codec.encode(Known(True))

    def _log(self, request_id: str) -> RequestLog:
        rows = self.logs[request_id]
        end = next((row.end for row in rows.values() if row.end), "")
        return RequestLog(request_id, True, (ChoiceLog(0, self.ids(request_id), end, self.epochs[request_id]),))

    async def _host(self, payload: bytes, traceparent: str) -> bytes:
        message = codec.decode_in("HostMessage", payload)
        if not isinstance(message, Kill):
            return codec.encode_in("HostReply", Incarnations(tuple(self.processes)))
        process = self.processes.pop(message.incarnation, None)
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)
        self.killed.put_nowait(message.incarnation)
        return codec.encode_in("HostReply", Gone(message.incarnation))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(10)
