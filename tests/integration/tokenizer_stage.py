"""A tokenizer process with a gateway and a scheduler played by the test around it."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from libs.contracts import codec, flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import (
    Accepted,
    Cancel,
    CellRecord,
    Done,
    Known,
    Prompt,
    Rejected,
    Request,
    SamplingParams,
    Sequence,
    ServiceStatus,
)
from libs.runtime.bus import Bus
from libs.runtime.work_queue import Work
from tests.integration.servers import NatsServer

MODEL, GATEWAY, BLOCK_TOKENS, MAX_MODEL_LEN = "small model", "g1", 16, 256
HASH_KEY = b"deployment key"
TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
SOON_S = 10.0
LATER_MS = 60_000


def request(request_id: str = "r1", text: str = "Hello, all!", **changes: object) -> Request:
    deadline_unix_ms = time.time_ns() // 1_000_000 + LATER_MS
    whole = Request(
        request_id, 1, GATEWAY, MODEL, "tenant", Prompt(text=text), SamplingParams(), 1, deadline_unix_ms, False
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


class Stage:
    """A tokenizer process and the test's own gateway and scheduler around it."""

    def __init__(self, server: NatsServer, gateway: Bus, scheduler: Bus, model_dir: Path) -> None:
        self.server, self.gateway, self.scheduler, self.model_dir = server, gateway, scheduler, model_dir
        self.told: asyncio.Queue[Accepted | Rejected] = asyncio.Queue()
        self.cancelled: asyncio.Queue[tuple[str, Cancel]] = asyncio.Queue()
        self.traces: set[str] = set()  # under which it spoke
        self.live, self.term = True, 0

    async def answer_gateway(self) -> None:
        async def answer(payload: bytes, traceparent: str) -> bytes:
            self.traces.add(traceparent)
            self.told.put_nowait(codec.decode_in("RepliesMessage", payload))
            return codec.encode(Known(self.live))

        await self.gateway.serve(flow.replies_subject(GATEWAY), answer)

    async def lead(self, cell: str, max_prompt_tokens: int = 0) -> None:
        """Lead a cell whose workers are there: its record, and its control subject."""

        async def answer(payload: bytes, traceparent: str) -> bytes:
            self.traces.add(traceparent)
            self.cancelled.put_nowait((cell, codec.decode_in("ControlMessage", payload)))
            return codec.encode(Done(True))

        record = CellRecord(MODEL, cell, 0, "s", "127.0.0.1:1", BLOCK_TOKENS, "digest", max_prompt_tokens)
        claimed = await self.scheduler.claim_term(replace(record, block_tokens=0, model_digest=""))
        self.term = claimed.term
        await self.scheduler.put_cell(replace(record, term=self.term))
        await self.scheduler.serve(flow.control_subject(cell), answer)

    async def send(self, message: Request) -> None:
        await self.gateway.enqueue(
            flow.requests_subject(MODEL),
            codec.encode(message),
            message_id=f"{message.request_id}:request",
            traceparent=TRACEPARENT,
        )

    async def next_told(self) -> Accepted | Rejected:
        return await asyncio.wait_for(self.told.get(), SOON_S)

    @asynccontextmanager
    async def sequences(self, cell: str) -> AsyncIterator[AsyncIterator[Work]]:
        works = self.scheduler.work(
            flow.SEQUENCES_STREAM,
            consumer=f"{cell}_1",
            filter_subject=flow.sequences_subject(MODEL, cell),
            ack_wait_s=3600,
            max_ack_pending=100,
        )
        async with asyncio.timeout(SOON_S), aclosing(works):
            yield works

    async def next_sequence(self, cell: str = "c0") -> tuple[Sequence, Work]:
        async with self.sequences(cell) as works:
            work = await anext(works)
            return codec.decode(Sequence, work.payload), work

    async def queue_is_empty(self) -> bool:
        """Whether every request has been acknowledged, within the time that takes."""
        info = None
        with suppress(TimeoutError):
            async with asyncio.timeout(SOON_S):
                while info is None or info.state.messages:
                    info = await self.scheduler._js.stream_info(flow.REQUESTS_STREAM)
        return info is not None and info.state.messages == 0


@asynccontextmanager
async def tokenizer(server: NatsServer, model_dir: Path, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running `python -m services.tokenizer`; killed at the end if the test has not ended it."""
    values = {
        "NATS_URL": server.url,
        "NATS_USER": "tokenizer",
        "NATS_PASSWORD": server.passwords["tokenizer"],
        "MODEL_DIR": str(model_dir),
        "MODEL": MODEL,
        "HASH_KEY": HASH_KEY.hex(),
        "MAX_MODEL_LEN": str(MAX_MODEL_LEN),
        "INSTANCE": "t1",
        **settings,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.tokenizer",
        env={"PATH": os.environ["PATH"], **{f"HR_TOKENIZER_{name}": value for name, value in values.items()}},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def is_told_soon(stage: Stage) -> bool:
    """Whether the gateway hears anything in the time that a request needs many times over."""
    try:
        await asyncio.wait_for(stage.told.get(), 0.3)
    except TimeoutError:
        return False
    return True


async def until_status(stage: Stage, *, ready: bool) -> None:
    """Until the tokenizer runs and says that it is ready, or that it is not."""
    async with stage.server.connect("supervisor") as supervisor, asyncio.timeout(SOON_S):
        while True:
            with suppress(Unavailable):
                answer = await supervisor.request(flow.STATUS_SUBJECT, b"", timeout_s=1)
                if codec.decode(ServiceStatus, answer).ready == ready:
                    return
            await asyncio.sleep(0.01)
