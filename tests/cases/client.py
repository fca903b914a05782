"""Sends what a case says, in httpx or, where a request is no proper one, in bytes."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx

from tests.cases.reply import DONE, Reply, strictly

TIMEOUT_S = 60.0


class Client:
    """Requests to one server, with its key unless told otherwise."""

    def __init__(self, origin: str, key: str) -> None:
        self._key = key
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(base_url=origin, timeout=TIMEOUT_S, limits=limits, verify=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, request: Mapping[str, Any], *, leave_after: int | None = None) -> Reply:
        """One request of a case file, expanded. `leave_after` is how many events the client hears before it goes."""
        headers = {"authorization": f"Bearer {self._key}"} if self._key and not request.get("no_auth") else {}
        content = None
        if "raw" in request:
            content = request["raw"].encode()
        elif "body" in request:
            content = json.dumps(request["body"]).encode()
            headers["content-type"] = "application/json"
        headers |= {name.lower(): value for name, value in request.get("headers", {}).items()}
        started_s = time.monotonic()
        async with self._http.stream(request["method"], request["path"], content=content, headers=headers) as answer:
            reply = Reply(answer.status_code, {name.lower(): value for name, value in answer.headers.items()})
            if reply.is_stream:
                await _read_events(answer, reply, started_s, leave_after)
            elif leave_after is None:
                reply.body = await answer.aread()
        reply.took_s = time.monotonic() - started_s
        return reply

    async def leave(self, request: Mapping[str, Any], after_s: float) -> None:
        """Close the connection after a while, answered or not."""
        try:
            async with asyncio.timeout(after_s):
                await self.send(request)
        except TimeoutError:
            return
        raise AssertionError("it was answered before its client left")


async def _read_events(answer: httpx.Response, reply: Reply, started_s: float, leave_after: int | None) -> None:
    if leave_after == 0:
        return
    async for line in answer.aiter_lines():
        if not line:
            continue
        assert line.startswith("data: "), f"no data: {line[:80]}"
        data = line.removeprefix("data: ")
        assert not reply.is_done, "something after [DONE]"
        if data == DONE:
            reply.is_done = True
            continue
        reply.events.append(strictly(data))
        reply.heard_s.append(time.monotonic() - started_s)
        if len(reply.events) == leave_after:
            return


async def spoken(origin: str, data: bytes, *, more: bytes = b"", within_s: float = 5.0) -> bytes:
    """What a server says to raw bytes until it closes or falls silent; `more` is repeated until it stops reading."""
    url = httpx.URL(origin)
    reader, writer = await asyncio.open_connection(url.host, url.port)

    async def talk() -> None:
        writer.write(data)
        await writer.drain()
        while more:
            writer.write(more)
            await writer.drain()

    talking = asyncio.create_task(talk())
    heard = b""
    try:
        async with asyncio.timeout(within_s):
            while piece := await reader.read(1 << 16):
                heard += piece
    except (TimeoutError, ConnectionError):
        pass
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        writer.transport.abort()
    return heard
