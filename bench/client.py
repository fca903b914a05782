"""The load generator's client: one streamed completion over a bare connection, every event stamped as it arrives.

It shares two cores with the server under test, so it does the least there is to do per token: no HTTP library, no
task switch, one decode into a fixed type.
"""

import asyncio
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from bench.event_stream import BrokenAnswer, EventReader
from bench.scenarios import Job
from libs.contracts.errors import HeadraceError

DONE: Final = b"[DONE]"
REQUEST_TIMEOUT_S: Final = 600.0


class BenchError(HeadraceError):
    """A run that proves nothing: the server failed, or gave other tokens than it was asked for."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server under test. `base_url` ends in /v1; `extra` goes into every body."""

    name: str
    base_url: str
    model: str
    api_key: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request got. Times are of `time.perf_counter`; one arrival per event that carries tokens."""

    sent_s: float
    arrivals_s: tuple[float, ...]
    prompt_tokens: int
    new_tokens: int
    cached_tokens: int = 0

    @property
    def ttft_ms(self) -> float:
        return (self.arrivals_s[0] - self.sent_s) * 1e3

    @property
    def tpot_ms(self) -> float:
        """Mean time of a token after the first, however many share an event; 0 for one token."""
        later = self.new_tokens - 1
        return (self.arrivals_s[-1] - self.arrivals_s[0]) * 1e3 / later if later > 0 else 0.0


class _Cached(msgspec.Struct):
    cached_tokens: int | None = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Cached | None = None


class _Choice(msgspec.Struct):
    text: str = ""
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class Completion(asyncio.Protocol):
    """One request on a connection of its own; `reply` is resolved when the answer is whole and as it must be."""

    def __init__(self, request: bytes, job: Job, on_token: Callable[[int], None]) -> None:
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._request = request
        self._job = job
        self._on_token = on_token
        self._events = EventReader()
        self._decoder = msgspec.json.Decoder(_Chunk)
        self._sent_s = 0.0
        self._arrivals_s: list[float] = []
        self._finish = ""
        self._finished_s = 0.0
        self._usage: _Usage | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent_s = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        try:
            for event in self._events.feed(data):
                self._take(event, now_s)
        except (BrokenAnswer, msgspec.MsgspecError, BenchError) as error:
            self._fail(str(error))
        if self._events.ended:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "")

    def _take(self, event: bytes, now_s: float) -> None:
        """A closing event without text repeats the reason only; any other event with a choice carries tokens."""
        if event == DONE:
            return self._end()
        chunk = self._decoder.decode(event)
        if chunk.error:
            raise BenchError(f"the server broke off: {chunk.error}")
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._finish = choice.finish_reason or self._finish
            if choice.finish_reason and not choice.text:
                self._finished_s = now_s
                continue
            self._arrivals_s.append(now_s)
            self._on_token(len(self._arrivals_s))
        return None

    def _end(self, reason: str = "") -> None:
        """The body is whole, or the connection gone. Only what is complete and as ordered counts."""
        if self.reply.done():
            return None
        if self._events.status != 200:
            body = self._events.error_body[:300].decode(errors="replace")
            return self._fail(f"status {self._events.status} {body} {reason}".strip())
        problem = reason or self._problem()
        if problem:
            return self._fail(problem)
        assert self._usage is not None
        if not self._arrivals_s:  # the only token has no text of its own, as an end token has none
            self._arrivals_s.append(self._finished_s)
        details = self._usage.prompt_tokens_details
        self.reply.set_result(
            Reply(
                self._sent_s,
                tuple(self._arrivals_s),
                self._usage.prompt_tokens,
                self._usage.completion_tokens,
                (details.cached_tokens or 0) if details else 0,
            )
        )
        return None

    def _problem(self) -> str:
        """A server that ends early, or reads another prompt, would only look fast."""
        wanted = (len(self._job.prompt_ids), self._job.new_tokens)
        if self._usage is None:
            return "the answer ended without usage"
        given = (self._usage.prompt_tokens, self._usage.completion_tokens)
        if given != wanted:
            return f"{given[0]} tokens in and {given[1]} out, not {wanted[0]} and {wanted[1]}"
        if self._finish != "length":
            return f"the answer ended by {self._finish or 'nothing'}, not by its length"
        return ""

    def _fail(self, problem: str) -> None:
        if not self.reply.done():
            self.reply.set_exception(BenchError(problem))


def request_bytes(target: Target, job: Job) -> bytes:
    """The whole HTTP request: greedy, of fixed length, streamed, with usage at the end."""
    body = {
        "model": target.model,
        "prompt": job.prompt_ids,
        "max_tokens": job.new_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,  # a part of a character is an event, too, where a server can tell it
        "stream": True,
        "stream_options": {"include_usage": True},
        **target.extra,
    }
    url, encoded = urlsplit(target.base_url), json.dumps(body).encode()
    head = [
        f"POST {url.path}/completions HTTP/1.1",
        f"Host: {url.netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(encoded)}",
        "Connection: close",
    ]
    if target.api_key:
        head.append(f"Authorization: Bearer {target.api_key}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + encoded


async def complete(target: Target, job: Job, on_token: Callable[[int], None] = lambda count: None) -> Reply:
    """Send one request and read its answer; `on_token` gets the number of events so far. Raises BenchError."""
    url, request = urlsplit(target.base_url), request_bytes(target, job)
    assert url.hostname is not None
    try:
        transport, completion = await asyncio.get_running_loop().create_connection(
            lambda: Completion(request, job, on_token), url.hostname, url.port or 80
        )
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await completion.reply
        finally:
            transport.close()
    except OSError as error:
        raise BenchError(f"{target.name} at {target.base_url}: {error or 'no answer in time'}") from error
    except BenchError as error:
        raise BenchError(f"{target.name}: {error.message}") from error
