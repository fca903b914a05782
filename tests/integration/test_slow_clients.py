"""Clients that read late, or are gone without a word: they get what they asked for, or their work ends."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from tests.fakes.proxy import proxy
from tests.integration.pipeline import MODEL, SOON_S, Answer, Pipeline, greedy
from tests.integration.streams import STREAMS, assert_all_same, begin, until_begun

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

MANY_TOKENS = 400
PROMPT = list(range(500, 520))


@asynccontextmanager
async def lazy_client(running: Pipeline, port: int) -> AsyncIterator[socket.socket]:
    """A streamed request whose client has little room and does not read."""
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": MANY_TOKENS, "temperature": 0, "stream": True}
    payload = json.dumps(body | {"ignore_eos": True, "return_token_ids": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        yield client


async def read_on(client: socket.socket) -> list[int]:
    """The token ids of all that comes."""
    loop, received = asyncio.get_running_loop(), b""
    async with asyncio.timeout(SOON_S):
        while b"[DONE]" not in received:
            chunk = await loop.sock_recv(client, 65536)
            assert chunk, "the stream ended before its end"
            received += chunk
    events = [json.loads(line[6:]) for line in received.split(b"\n") if line.startswith(b"data: {")]
    return [token for event in events for choice in event["choices"] for token in choice.get("token_ids") or ()]


async def test_a_slow_reader_slows_nobody_and_misses_nothing(running: Pipeline) -> None:
    """Its tokens are kept, all others go on at their pace, and what it reads later is whole."""
    async with lazy_client(running, running.port) as lazy:
        seen = [Answer() for _ in range(STREAMS)]
        await assert_all_same(begin(running, seen))
        gaps_s = sorted(after - before for answer in seen for before, after in pairwise(answer.heard_s))
        assert gaps_s[len(gaps_s) // 2] < 0.2

        async with asyncio.timeout(3 * SOON_S):
            while (await running.status()).running:
                await asyncio.sleep(0.05)
        assert await read_on(lazy) == greedy(PROMPT, MANY_TOKENS)


async def test_a_client_that_vanishes_leaves_nothing(running: Pipeline) -> None:
    """No end, no reset: its request runs to its end, or is given up, and then nothing of it is held."""
    async with proxy(running.base_url) as between:
        async with lazy_client(running, between.port):
            seen = [Answer()]
            streams = begin(running, seen, 300)
            await until_begun(seen)
            between.silence()
            await assert_all_same(streams, 300)
        await running.quiet()
