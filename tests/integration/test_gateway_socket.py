"""Chat over a WebSocket through the real server, with a client that knows the frames of RFC 6455 and nothing else."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.contracts.messages import Cancel, Delivered
from tests.integration.gateway_stage import KEY, Stack, ids_of
from tests.unit.gateway.backend import MODEL

pytestmark = pytest.mark.integration

TEXT, CLOSE = 0x1, 0x8
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}


class Client:
    """One connection that was upgraded, or answered by `status`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
        self._reader, self.writer, self.status = reader, writer, status

    @classmethod
    @asynccontextmanager
    async def dial(cls, base_url: str, **headers: str) -> AsyncIterator["Client"]:
        host = base_url.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        given = {
            "Host": host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        writer.write(f"GET /v1/chat/completions HTTP/1.1\r\n{lines}\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        try:
            yield cls(reader, writer, int(head.split()[1]))
        finally:
            writer.close()

    def say(self, message: object) -> None:
        payload, mask = json.dumps(message).encode(), os.urandom(4)
        size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        self.writer.write(bytes([0x80 | TEXT]) + size + mask + masked)

    async def hear(self) -> Any:
        """The next message, "[DONE]" as text; None for the end."""
        first, second = await asyncio.wait_for(self._reader.readexactly(2), 10)
        size = second if second < 126 else int.from_bytes(await self._reader.readexactly(2))
        payload = await self._reader.readexactly(size)
        if first & 0xF == CLOSE:
            return None
        text = payload.decode()
        return text if text == "[DONE]" else json.loads(text)


async def test_a_chat_comes_over_a_socket_and_ends_with_it(stack: Stack) -> None:
    """A whole answer, then one that is cancelled by word, then one by hanging up."""
    async with Client.dial(stack.base_url, Authorization=f"Bearer {KEY}") as client:
        assert client.status == 101
        client.say(BODY)
        await stack.answer(ids_of("ab"), "length")
        heard = [await client.hear()]
        while heard[-1] != "[DONE]":
            heard.append(await client.hear())
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in heard[:-1]) == "ab"
        await stack.backend.told(Delivered)

        client.say(BODY)
        request = await stack.accepted()
        await stack.backend.tokens(request, 0, ids_of("a"))
        client.say({"type": "cancel"})
        assert (await stack.backend.told(Cancel)).request_id == request.request_id
        while (last := await client.hear()).get("type") != "cancelled":
            pass
        assert last["id"] == request.request_id

        client.say(BODY)
        request = await stack.accepted()
        await stack.backend.tokens(request, 0, ids_of("a"))
    assert (await stack.backend.told(Cancel)).request_id == request.request_id


async def test_a_socket_without_the_key_is_refused(stack: Stack) -> None:
    """Before the upgrade, by an HTTP status."""
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        async with Client.dial(stack.base_url, **headers) as client:
            assert client.status == 403
