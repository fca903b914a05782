"""One request's answer, as bytes, into a reply or an error."""

import asyncio
import json
from typing import Any

import pytest

from bench.client import BenchError, Completion, Target, request_bytes
from bench.scenarios import Job

JOB = Job((5, 6, 7), 2)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


def event(**content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def token(text: str, reason: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "text": text, "finish_reason": reason}])


async def answered(*parts: bytes, job: Job = JOB) -> tuple[Completion, list[int]]:
    counts: list[int] = []
    completion = Completion(b"", job, counts.append)
    for part in parts:
        completion.data_received(part)
    completion.connection_lost(None)
    return completion, counts


async def test_each_token_is_stamped_and_usage_is_checked() -> None:
    """Two tokens, two arrivals, in order."""
    completion, counts = await answered(
        HEAD, token("a"), token("b", "length"), event(choices=[], usage=USAGE), b"data: [DONE]\n\n"
    )

    reply = await completion.reply
    assert (len(reply.arrivals_s), reply.prompt_tokens, reply.new_tokens) == (2, 3, 2)
    assert list(reply.arrivals_s) == sorted(reply.arrivals_s)
    assert counts == [1, 2]


async def test_a_closing_event_without_text_is_no_token() -> None:
    """Some servers repeat the reason in an event of its own; a token without text is one all the same."""
    completion, counts = await answered(
        HEAD, token("a"), token(""), token("", "length"), event(choices=[], usage=USAGE)
    )

    assert len((await completion.reply).arrivals_s) == 2
    assert counts == [1, 2]


async def test_an_only_token_without_text_arrives_with_the_end() -> None:
    """A special token has no text, and its event tells the reason already."""
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    completion, _ = await answered(
        HEAD, token("", "length"), event(choices=[], usage=usage), job=Job(JOB.prompt_ids, 1)
    )

    assert len((await completion.reply).arrivals_s) == 1


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((token("a", "stop"), event(choices=[], usage=USAGE)), "ended by stop"),
        ((token("a"), token("b", "length")), "without usage"),
        (
            (token("a", "length"), event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 1})),
            "3 tokens in and 1 out, not 3 and 2",
        ),
        (
            (token("a", "length"), event(choices=[], usage={"prompt_tokens": 4, "completion_tokens": 2})),
            "4 tokens in and 2 out, not 3 and 2",
        ),
        ((event(error={"message": "no memory"}),), "no memory"),
        ((b"data: {broken\n\n",), "JSON"),
    ],
)
async def test_an_answer_that_is_not_as_ordered_is_an_error(parts: tuple[bytes, ...], problem: str) -> None:
    """A server that ends early, or reads another prompt, would only look fast."""
    completion, _ = await answered(HEAD, *parts)

    with pytest.raises(BenchError, match=problem):
        await completion.reply


async def test_another_status_is_an_error_with_its_text() -> None:
    """The server's own words tell what is wrong."""
    completion, _ = await answered(b"HTTP/1.1 400 Bad\r\nContent-Length: 9\r\n\r\ntoo long!")

    with pytest.raises(BenchError, match="status 400 too long!"):
        await completion.reply


def test_the_request_is_greedy_and_of_fixed_length() -> None:
    """Every server gets the same body, but for the fields that its own flags need."""
    target = Target("peer", "http://127.0.0.1:9/v1", "m", "key", {"cache_prompt": True})

    head, _, body = request_bytes(target, JOB).partition(b"\r\n\r\n")

    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:9\r\n")
    assert b"Authorization: Bearer key" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body) == {
        "model": "m",
        "prompt": [5, 6, 7],
        "max_tokens": 2,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": True,
    }


async def test_nothing_is_left_pending_when_the_connection_breaks() -> None:
    """A reset before the status line is an error, not a wait."""
    completion = Completion(b"", JOB, lambda count: None)
    completion.connection_lost(ConnectionResetError("reset"))

    with pytest.raises(BenchError, match="reset"):
        async with asyncio.timeout(1):
            await completion.reply
