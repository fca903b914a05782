"""A small HTTP client for the end-to-end tests: whole answers, streams, and connections that break off on purpose."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

DEADLINE_S = 500.0  # of one request among many on a busy machine; the timeout of the test ends it before


async def complete(base_url: str, body: dict[str, Any], path: str = "/completions") -> dict[str, Any]:
    """The whole answer of one request; fails on any status but 200."""
    async with httpx.AsyncClient(base_url=base_url, timeout=DEADLINE_S) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    parsed: dict[str, Any] = answer.json()
    return parsed


async def events(base_url: str, body: dict[str, Any], path: str = "/completions") -> AsyncIterator[dict[str, Any]]:
    """Every event of a streamed answer up to [DONE]."""
    async with (
        httpx.AsyncClient(base_url=base_url, timeout=DEADLINE_S) as client,
        client.stream("POST", path, json={**body, "stream": True}) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                return
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


@asynccontextmanager
async def abandoned(base_url: str, body: dict[str, Any], path: str) -> AsyncIterator[asyncio.StreamReader]:
    """A request whose connection is closed, answer or not, when the block is left."""
    url = urlsplit(base_url)
    payload = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    head = f"POST {url.path}{path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    await writer.drain()
    try:
        yield reader
    finally:
        writer.transport.abort()


async def until(condition: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Seconds until `condition` holds; fails with `what` when it does not within `within_s`."""
    started_s = time.monotonic()
    while not condition():
        assert time.monotonic() - started_s < within_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)
    return time.monotonic() - started_s
