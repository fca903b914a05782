"""All services in processes of their own, on a fake engine, between real brokers; each connection can be made bad.

A test plays the clients, and the host that ends workers. What a request must yield is tests.fakes.engine.expected.
"""

import asyncio
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from deploy.index_functions import load_once
from libs.contracts import codec, flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import CellStatus, Gone, Incarnations, Kill, SamplingParams, StatusQuery
from tests.fakes.engine import VOCAB_SIZE, expected
from tests.fakes.proxy import Proxy, proxy
from tests.integration.fake_worker import TOKEN
from tests.integration.servers import ADMIN, NatsServer, ValkeyServer, free_port
from tests.unit.text.small_model import small_tokenizer_json

ROOT = Path(__file__).parents[2]
SOON_S = 20.0
MODEL, CELL, GATEWAY = "small", "c0", "gateway-1"
MAX_MODEL_LEN = 4096
HASH_KEY = "00ff"
SERVICES = ("scheduler", "tokenizer", "gateway")


@dataclass(slots=True)
class Answer:
    """What a client saw. `status` is 0 while there is none; `broken` tells a connection that ended too early."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    cached_tokens: int = 0  # of the prompt, where usage is asked for
    finish: str = ""
    error: dict[str, Any] = field(default_factory=dict)
    broken: bool = False
    started_s: float = field(default_factory=time.monotonic)
    heard_s: list[float] = field(default_factory=list)
    ended_s: float = 0.0


class Pipeline:
    """`to_nats` has the proxy of each service, `to_index` and `to_scheduler` those to Valkey and of the worker link."""

    def __init__(self, folder: Path, nats: NatsServer, valkey: ValkeyServer) -> None:
        self.nats, self.valkey = nats, valkey
        self.port, self._link_port = free_port(), free_port()
        self.to_nats: dict[str, Proxy] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}  # by service
        self.workers: dict[str, subprocess.Popen[bytes]] = {}  # by incarnation, until they are ended
        self.killed: list[str] = []
        self._restarts: dict[str, dict[str, Any]] = {}  # by incarnation, how it was started
        self.settings: dict[str, dict[str, object]] = {service: {} for service in SERVICES}
        self.modules = {service: f"services.{service}" for service in SERVICES}
        self.folder, self._open = folder, AsyncExitStack()
        _write_tokenizer(folder)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        for service in (*SERVICES, "decode_worker"):
            self.to_nats[service] = await self._open.enter_async_context(proxy(self.nats.url))
        self.to_index = await self._open.enter_async_context(proxy(self.valkey.url))
        self.to_scheduler = await self._open.enter_async_context(proxy(f"tcp://127.0.0.1:{self._link_port}"))
        agent = await self._open.enter_async_context(self.nats.connect("supervisor"))
        await agent.serve(flow.host_subject("local"), self._host)
        self.admin = await self._open.enter_async_context(self.nats.connect(ADMIN))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        client = httpx.AsyncClient(base_url=self.base_url, timeout=60, limits=limits, verify=False)
        self._client = await self._open.enter_async_context(client)
        for service in SERVICES:
            self.start(service)

    async def close(self) -> None:
        for process in (*self.processes.values(), *self.workers.values()):
            process.kill()
            process.wait()
        await self._open.aclose()

    def start(self, service: str) -> None:
        """Start a service, again if it was ended."""
        values = {**self._common(service), **self._own(service), **self.settings[service]}
        environ = {f"HR_{service.upper()}_{name.upper()}": str(value) for name, value in values.items()}
        with (self.folder / f"{service}.log").open("ab") as log:
            self.processes[service] = subprocess.Popen(
                [sys.executable, "-m", self.modules[service]], cwd=ROOT, env={"PATH": os.defpath, **environ}, stderr=log
            )

    def end(self, service: str) -> None:
        self.processes[service].kill()
        self.processes[service].wait()

    def start_worker(self, *, step_s: float = 0.01, blocks: int = 256, **more: object) -> str:
        """A decode worker, started again whenever the scheduler has it ended; its incarnation."""
        incarnation = secrets.token_hex(16)
        self._restarts[incarnation] = {"step_s": step_s, "blocks": blocks, **more}
        settings = {
            "role": "decode",
            "model": MODEL,
            "pool": str(self.folder / "pool"),
            "blocks": blocks,
            "step_s": step_s,
            "instance": f"decode-{incarnation[:4]}",
            "incarnation": incarnation,
            "nats_url": f"nats://127.0.0.1:{self.to_nats['decode_worker'].port}",
            "nats_password": self.nats.passwords["decode_worker"],
            "link_via": f"127.0.0.1:{self.to_scheduler.port}",
            **more,
        }
        with (self.folder / "worker.log").open("ab") as log:
            self.workers[incarnation] = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.fake_worker", json.dumps(settings)],
                cwd=ROOT,
                env={"PATH": os.defpath},
                stderr=log,
            )
        return incarnation

    def restart(self, service: str) -> None:
        self.end(service)
        self.start(service)

    def end_worker(self, incarnation: str) -> None:
        process = self.workers.pop(incarnation)
        process.kill()
        process.wait()

    async def ready(self, *, workers: int = 1) -> None:
        """Until requests can be served by so many workers."""
        async with asyncio.timeout(SOON_S):
            while True:
                with suppress(httpx.TransportError, Unavailable):
                    ready = await self._client.get("/ready")
                    if ready.status_code == 200 and len((await self.status()).workers) >= workers:
                        return
                await asyncio.sleep(0.05)

    async def status(self) -> CellStatus:
        payload = codec.encode_in("ControlMessage", StatusQuery())
        return codec.decode(CellStatus, await self.admin.request(flow.control_subject(CELL), payload, timeout_s=1.0))

    async def queued(self) -> tuple[int, int]:
        """Messages in the two queues: requests, sequences."""
        infos = [await self.admin._js.stream_info(name) for name in (flow.REQUESTS_STREAM, flow.SEQUENCES_STREAM)]
        return infos[0].state.messages, infos[1].state.messages

    async def quiet(self) -> None:
        """Until nothing is left of any request: no block held, none freeing, nobody waiting, both queues empty."""
        left: object = None
        try:
            async with asyncio.timeout(SOON_S):
                while True:
                    with suppress(Unavailable, asyncio.TimeoutError):
                        now, queued = await self.status(), await self.queued()
                        left = (now.running, now.waiting, now.blocks_held, now.blocks_freeing, *queued)
                        if not any(left):
                            assert now.blocks_free + now.blocks_cached == now.blocks_total
                            return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"running, waiting, held, freeing, requests, sequences: {left}") from None

    async def gauges(self) -> dict[str, float]:
        """How many requests run and wait, as /metrics tells it."""
        text = (await self._client.get("/metrics")).text
        found = re.findall(r"^vllm:num_requests_(running|waiting)\{[^}]*\} (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    async def ask(
        self, ids: Sequence[int], max_tokens: int, *, seen: Answer | None = None, key: str = "", **more: object
    ) -> Answer:
        """One streamed request to its end, whatever that is; `seen` is filled as it goes on."""
        answer = seen or Answer()
        body = {"model": MODEL, "prompt": list(ids), "max_tokens": max_tokens, "temperature": 0, "stream": True}
        body |= {"ignore_eos": True, "return_token_ids": True, **more}
        try:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            async with self._client.stream("POST", "/v1/completions", json=body, headers=headers) as response:
                answer.status, answer.headers = response.status_code, dict(response.headers)
                if answer.status != 200:
                    answer.error = json.loads(await response.aread())["error"]
                    return answer
                async for line in response.aiter_lines():
                    _take(answer, line)
        except httpx.TransportError:
            answer.broken = True
        finally:
            answer.ended_s = time.monotonic()
        return answer

    def _common(self, service: str) -> dict[str, object]:
        return {
            "nats_url": f"nats://127.0.0.1:{self.to_nats[service].port}",
            "nats_user": service,
            "nats_password": self.nats.passwords[service],
            "model": MODEL,
        }

    def _own(self, service: str) -> dict[str, object]:
        index: dict[str, object] = {
            "redis_url": f"redis://127.0.0.1:{self.to_index.port}",
            "redis_user": service,
            "redis_password": self.valkey.passwords.get(service, ""),
        }
        model: dict[str, object] = {"model_dir": self.folder, "max_model_len": MAX_MODEL_LEN}
        if service == "scheduler":
            return {**index, "link_token": TOKEN, "role": "hybrid", "link_port": self._link_port}
        if service == "tokenizer":
            return {**index, **model, "hash_key": HASH_KEY}
        return {**model, "port": self.port, "instance": GATEWAY}

    async def _host(self, payload: bytes, traceparent: str) -> bytes:
        message = codec.decode_in("HostMessage", payload)
        if not isinstance(message, Kill):
            return codec.encode_in("HostReply", Incarnations(tuple(self.workers)))
        process = self.workers.pop(message.incarnation, None)
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)
            self.killed.append(message.incarnation)
            self.start_worker(**self._restarts[message.incarnation])
        return codec.encode_in("HostReply", Gone(message.incarnation))


@asynccontextmanager
async def pipeline(
    folder: Path, *, modules: Mapping[str, str] = MappingProxyType({}), **settings: dict[str, object]
) -> AsyncIterator[Pipeline]:
    """A running pipeline without workers; `settings` are by service, and so are `modules` to run in its place."""
    nats, valkey = NatsServer(folder), ValkeyServer(folder)
    running = Pipeline(folder, nats, valkey)
    running.settings |= settings
    running.modules |= modules
    try:
        await load_once(valkey.url, valkey.passwords["supervisor"])
        await running.open()
        yield running
    finally:
        await running.close()
        valkey.stop()
        nats.stop()


def greedy(ids: Sequence[int], max_tokens: int) -> list[int]:
    """What `ask` must yield."""
    return list(expected(ids, SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True))[0])


def _take(answer: Answer, line: str) -> None:
    if not line.startswith("data: {"):
        return
    event = json.loads(line.removeprefix("data: "))
    if "error" in event:
        answer.error = event["error"]
        return
    if usage := event.get("usage"):
        answer.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
    for choice in event["choices"]:
        if choice.get("token_ids"):
            answer.ids += choice["token_ids"]
            answer.heard_s.append(time.monotonic())
        answer.finish = choice["finish_reason"] or answer.finish


def _write_tokenizer(folder: Path) -> None:
    """The small tokenizer, filled up to the fake engine's vocabulary: each token shows as text."""
    tokenizer = json.loads(small_tokenizer_json())
    vocab = tokenizer["model"]["vocab"]
    vocab |= {f"~{index}": index for index in range(len(vocab), VOCAB_SIZE)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
