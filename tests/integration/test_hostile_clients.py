"""Clients that mean no good, against a gateway process: fuzzed bodies, thousands of idle connections, slow readers."""

import asyncio
import json
import socket
import statistics
import time
from itertools import pairwise
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.gateway_stage import KEY, Stack, ids_of
from tests.unit.gateway.backend import MODEL
from tests.unit.gateway.test_fuzzed import NASTY, RAW

pytestmark = pytest.mark.integration

HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
BEAT_S = 0.02
FIELDS = ("n", "stop", "temperature", "seed", "prompt", "logit_bias", "stream_options", "max_tokens", "model")
IDLE, SLOW_HEADS, SLOW_READERS = 2000, 500, 200
MOST_A_CONNECTION_BYTES = 100 << 10


def _resident_bytes(stack: Stack) -> int:
    return int(psutil.Process(stack.process.pid).memory_info().rss)


async def _stream(stack: Stack, until: asyncio.Event) -> list[float]:
    """A stream that a played worker feeds every 20 ms; when its client heard each piece."""
    heard: list[float] = []
    async with stack.client() as client:
        call = asyncio.create_task(client.completions.create(model=MODEL, prompt="x", stream=True, max_tokens=200))
        request = await stack.accepted()

        async def feed() -> None:
            for position in range(199):
                if until.is_set():
                    await stack.backend.tokens(request, position, ids_of("z"), "length")
                    return
                await stack.backend.tokens(request, position, ids_of("a"))
                await asyncio.sleep(BEAT_S)

        feeding = asyncio.create_task(feed())
        async for chunk in await call:
            heard += [time.monotonic()] * bool(chunk.choices and chunk.choices[0].text)
        await feeding
    return heard


async def test_fuzzed_bodies_are_refused_soon_and_disturb_no_stream(stack: Stack) -> None:
    """4xx each, 95 of 100 within 100 ms, the largest body among them; a stream beside them keeps its pace."""
    bodies = [*RAW, b"[" * (4 << 20), b'"[",' * (1 << 20), b"x" * (5 << 20)]
    bodies += [_body(field, value) for field in FIELDS for value in NASTY if value not in ([], None, "x", 0, 1, True)]
    until, took_s, statuses = asyncio.Event(), [], set()
    streaming = asyncio.create_task(_stream(stack, until))
    async with httpx.AsyncClient(base_url=stack.base_url, headers=HEADERS, timeout=10) as client:
        for body in bodies:
            started_s = time.monotonic()
            answer = await client.post("/v1/chat/completions", content=body)
            took_s.append(time.monotonic() - started_s)
            statuses.add(answer.status_code)
            assert 400 <= answer.status_code < 500, (body[:100], answer.text)
            assert answer.json()["error"]["message"]
    until.set()
    gaps_s = [after - before for before, after in pairwise(await streaming)]

    assert statuses <= {400, 404, 413} and statistics.quantiles(took_s, n=20)[-1] < 0.1
    assert statistics.median(gaps_s) < 5 * BEAT_S


def _body(field: str, value: Any) -> bytes:
    """A chat that is wrong in `tools` at least: what is right in the field itself is refused all the same."""
    messages = [{"role": "user", "content": "x"}]
    return json.dumps({"model": MODEL, "messages": messages, "tools": [{}], field: value}).encode()


async def test_a_body_of_one_byte_chunks_is_a_body(stack: Stack) -> None:
    """Slowly put together, and then read as any other."""

    async def bytewise() -> Any:
        for byte in json.dumps({"model": MODEL, "prompt": "x", "n": 0}).encode():
            yield bytes([byte])

    async with httpx.AsyncClient(base_url=stack.base_url, headers=HEADERS) as client:
        answer = await client.post("/v1/completions", content=bytewise())
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


@pytest.mark.whole
async def test_idle_slow_and_unread_connections_cost_little(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """2,000 say nothing, 500 never end their head, 200 read nothing: memory is bounded, others served."""
    port, before = int(stack.base_url.rpartition(":")[2]), _resident_bytes(stack)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(IDLE)]
    heads = [await asyncio.open_connection("127.0.0.1", port) for _ in range(SLOW_HEADS)]
    for _, writer in heads:
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    with_idle = _resident_bytes(stack) - before
    readers, requests = [], []
    for _ in range(SLOW_READERS):
        readers.append(await _unread(stack, port))
        requests.append(await stack.accepted())
    for position in range(200):
        for request in requests:
            await stack.backend.tokens(request, position, ids_of("a"))
    with_readers = _resident_bytes(stack) - before - with_idle
    async with stack.client() as client:
        started_s = time.monotonic()
        call = asyncio.create_task(client.completions.create(model=MODEL, prompt="x", max_tokens=1))
        await stack.answer(ids_of("a"), "length")
        assert (await call).choices[0].text == "a"
        served_s = time.monotonic() - started_s
    for _, writer in (*idle, *heads):
        writer.transport.abort()
    for reader in readers:
        reader.close()

    with capsys.disabled():
        print(f"\n{IDLE} idle, {SLOW_HEADS} slow heads: {with_idle >> 10} KiB", end="; ")
        print(f"{SLOW_READERS} unread streams: {with_readers >> 10} KiB; beside them: {served_s * 1000:.0f} ms")
    assert with_idle < (IDLE + SLOW_HEADS) * MOST_A_CONNECTION_BYTES
    assert with_readers < SLOW_READERS * 4 * MOST_A_CONNECTION_BYTES and served_s < 1


async def _unread(stack: Stack, port: int) -> socket.socket:
    """A stream whose client has little room and reads nothing."""
    body = json.dumps({"model": MODEL, "prompt": "x", "stream": True, "max_tokens": 200}).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in {**HEADERS, "content-length": str(len(body))}.items())
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode() + body)
    return client
