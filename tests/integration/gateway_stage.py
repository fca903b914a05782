"""A gateway process behind a real broker, and who plays the services behind it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from openai import AsyncOpenAI

from libs.contracts import codec, flow
from libs.contracts.messages import Request
from libs.runtime.bus import Bus
from tests.fakes.collector import Collector
from tests.integration.servers import ADMIN, NatsServer, free_port
from tests.unit.gateway.backend import MODEL, Backend, cell_record
from tests.unit.text.small_model import FIRST_BYTE, small_tokenizer_json

INSTANCE = "gateway-under-test"
KEY = "sk-test-integration"
MAX_MODEL_LEN = 256
START_S = 15.0


def ids_of(text: str) -> list[int]:
    """One id a byte in the small vocabulary."""
    return [FIRST_BYTE + byte for byte in text.encode()]


@dataclass(frozen=True, slots=True)
class Stack:
    """A gateway process, its broker, and who plays the services behind it."""

    process: asyncio.subprocess.Process
    bus: Bus
    backend: Backend
    base_url: str
    requests: asyncio.Queue[Request]
    environ: dict[str, str]

    def client(self, *, key: str = KEY) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.base_url}/v1", api_key=key, max_retries=0, timeout=20)

    async def accepted(self) -> Request:
        """The next request from the queue, accepted."""
        request = await asyncio.wait_for(self.requests.get(), 10)
        assert await self.backend.accept(request)
        return request

    async def answer(self, ids: Sequence[int], end: str, *, lost: Sequence[int] = ()) -> Request:
        """Accept the next request and send a frame a token, but for those that the broker is to lose."""
        request = await self.accepted()
        self.backend.log[request.request_id] = (tuple(ids), end)
        for position, token_id in enumerate(ids):
            if position not in lost:
                last = end if position == len(ids) - 1 else ""
                await self.backend.tokens(request, position, [token_id], last)
        return request


@asynccontextmanager
async def gateway_stage(
    own_nats_server: NatsServer, traces: Collector, tmp_path: Path, **more: str
) -> AsyncIterator[Stack]:
    """`python -m services.gateway` with a key, ready to serve. `more` are further settings."""
    (tmp_path / "tokenizer.json").write_text(small_tokenizer_json())
    port = free_port()
    async with own_nats_server.connect(ADMIN) as bus:
        await bus.declare_work_queue(flow.REQUESTS_STREAM, ["requests.*"], max_messages=100)
        await bus.declare_cells()
        record = cell_record()
        term = (await bus.claim_term(record)).term
        backend = Backend(bus, INSTANCE, term=term)
        await backend.start()
        settings = {
            "INSTANCE": INSTANCE,
            "NATS_URL": own_nats_server.url,
            "NATS_USER": "gateway",
            "NATS_PASSWORD": own_nats_server.passwords["gateway"],
            "HOST": "127.0.0.1",
            "PORT": str(port),
            "MODEL_DIR": str(tmp_path),
            "MODEL": MODEL,
            "API_KEY": KEY,
            "MAX_MODEL_LEN": str(MAX_MODEL_LEN),
            "OTLP_ENDPOINT": traces.endpoint,
            **more,
        }
        environ = dict(os.environ) | {f"HR_GATEWAY_{name}": value for name, value in settings.items()}
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.gateway", env=environ)
        requests: asyncio.Queue[Request] = asyncio.Queue()
        pulling = asyncio.create_task(pull(bus, requests))
        try:
            base_url = f"http://127.0.0.1:{port}"
            await until_ready(base_url, process)
            yield Stack(process, bus, backend, base_url, requests, environ)
        finally:
            pulling.cancel()
            await asyncio.gather(pulling, return_exceptions=True)
            if process.returncode is None:
                process.kill()
            await process.wait()


async def pull(bus: Bus, requests: asyncio.Queue[Request]) -> None:
    work = bus.work(
        flow.REQUESTS_STREAM,
        consumer=flow.TOKENIZERS_CONSUMER,
        filter_subject=flow.requests_subject(MODEL),
        ack_wait_s=5,
        max_ack_pending=100,
    )
    async for item in work:
        requests.put_nowait(codec.decode(Request, item.payload))
        await item.ack()


async def until_ready(base_url: str, process: asyncio.subprocess.Process) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(START_S):
        while process.returncode is None:
            try:
                if (await client.get(f"{base_url}/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)
    raise AssertionError("the gateway ended instead of serving")
