"""A client that goes away takes its work with it, wherever that work is."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psutil
import pytest

from tests.e2e.client import abandoned, until
from tests.e2e.conftest import Stack, StackFactory

pytestmark = pytest.mark.e2e
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
GONE_WITHIN_S = 1.5


def body(stack: Stack, stream: bool, **more: Any) -> dict[str, Any]:
    return {"model": stack.model, "prompt": "Tell me", "max_tokens": 1500, "ignore_eos": True, "stream": stream, **more}


def nothing_held(stack: Stack) -> bool:
    status = stack.status()
    blocks = status["blocks"]
    return (blocks["held"], blocks["freeing"], status["waiting"], status["running"]) == (0, 0, 0, 0)


def holds(stack: Stack, **counts: int) -> bool:
    status = stack.status()
    return all(status[name] == count for name, count in counts.items())


@asynccontextmanager
async def frozen(stack: Stack, service: str) -> AsyncIterator[None]:
    """The service stands still inside the block."""
    processes = stack.processes(service)
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # a worker that stood still for too long was ended
                process.send_signal(signal.SIGCONT)


async def assert_all_freed(stack: Stack) -> None:
    started_s = time.monotonic()
    while not nothing_held(stack):
        assert time.monotonic() - started_s < GONE_WITHIN_S, f"still held: {stack.status()}"
        await asyncio.sleep(0.02)


@STREAMED
async def test_gone_in_the_tokenizer(hybrid: Stack, stream: bool) -> None:
    """The request reaches the scheduler after its client has left, and is dropped there."""
    async with frozen(hybrid, "tokenizer"), abandoned(hybrid.base_url, body(hybrid, stream), "/completions"):
        await asyncio.sleep(0.2)

    await assert_all_freed(hybrid)


@STREAMED
async def test_gone_while_waiting(stack: StackFactory, stream: bool) -> None:
    """A request that waits for blocks leaves the queue; the one in front goes on, then goes as well."""
    small = stack(role="hybrid", kv_blocks=64, max_model_len=1024)
    long_prompt = body(small, stream, prompt=[500] * 700, max_tokens=300)
    async with abandoned(small.base_url, long_prompt, "/completions"):
        await until(lambda: holds(small, running=1), within_s=10, what="the first runs")
        async with abandoned(small.base_url, {**long_prompt, "prompt": [600] * 700}, "/completions"):
            await until(lambda: holds(small, waiting=1), within_s=10, what="the second waits")
        await until(lambda: holds(small, waiting=0, running=1), within_s=GONE_WITHIN_S, what="the second is gone")

    await assert_all_freed(small)


@STREAMED
async def test_gone_in_a_chunk(hybrid: Stack, stream: bool) -> None:
    """A long prompt stops being computed at the next chunk."""
    long_prompt = body(hybrid, stream, prompt=[700 + n % 89 for n in range(1900)], max_tokens=8)
    async with abandoned(hybrid.base_url, long_prompt, "/completions"):
        await until(lambda: holds(hybrid, running=1), within_s=10, what="it runs")

    await assert_all_freed(hybrid)


@STREAMED
async def test_gone_at_the_hand_over(disaggregated: Stack, stream: bool) -> None:
    """The prompt is computed and the decode worker has not taken it yet: both ends are freed."""
    asked = body(disaggregated, stream)
    async with (
        frozen(disaggregated, "decode_worker"),
        abandoned(disaggregated.base_url, asked, "/completions") as reader,
    ):
        if stream:
            while b"data: " not in await reader.readline():
                pass
        await until(lambda: holds(disaggregated, running=1), within_s=10, what="it runs")
        await asyncio.sleep(0.3)

    await assert_all_freed(disaggregated)


@STREAMED
@pytest.mark.parametrize("role", ["hybrid", "disaggregated"])
async def test_gone_while_decoding(request: pytest.FixtureRequest, role: str, stream: bool) -> None:
    """The stream's blocks come back while its tokens would still have been wanted."""
    running: Stack = request.getfixturevalue(role)
    async with abandoned(running.base_url, body(running, stream), "/completions") as reader:
        await until(lambda: holds(running, running=1), within_s=10, what="it runs")
        for _ in range(12 if stream else 0):
            await reader.readline()

    await assert_all_freed(running)
