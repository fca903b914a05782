"""Response objects as the official client reads them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.shapes import ChunkWriter, Delta, Head, Source, Usage, whole
from services.gateway.validate import Kind
from tests.unit.gateway.asgi import events

USAGE = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=4)
USAGE_JSON = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 4},
}
IDS = (1, 2)


def head(kind: Kind, **options: Any) -> Head:
    return Head(kind, "id-1", "m", 99, **options)


def test_a_whole_chat_is_a_message() -> None:
    """One choice with role, content and reason, and the usage."""
    body = json.loads(whole(head(Kind.CHAT), [(Source(IDS), [Delta(0, "hi", [5], "stop")])], USAGE))

    assert body == {
        "id": "id-1",
        "object": "chat.completion",
        "created": 99,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE_JSON,
    }


def test_a_whole_completion_is_text() -> None:
    """As a chat, with `text` for the message."""
    body = json.loads(whole(head(Kind.COMPLETION), [(Source(IDS), [Delta(0, "hi", [5], "length")])], USAGE))

    assert body["object"] == "text_completion"
    assert body["choices"] == [{"index": 0, "text": "hi", "logprobs": None, "finish_reason": "length"}]


def test_token_ids_stand_where_vllm_has_them() -> None:
    """The prompt's beside a chat's choices and inside a completion's; the generated ones in the choice."""
    delta = Delta(0, "hi", [5, 6], "stop")
    chat = json.loads(whole(head(Kind.CHAT, return_token_ids=True), [(Source(IDS), [delta])], USAGE))
    completion = json.loads(whole(head(Kind.COMPLETION, return_token_ids=True), [(Source(IDS), [delta])], USAGE))

    assert (chat["prompt_token_ids"], chat["choices"][0]["token_ids"]) == ([1, 2], [5, 6])
    assert "prompt_token_ids" not in completion
    assert completion["choices"][0]["prompt_token_ids"] == [1, 2]
    assert completion["choices"][0]["token_ids"] == [5, 6]


@pytest.mark.parametrize("kind", list(Kind))
def test_all_chunks_share_their_head(kind: Kind) -> None:
    """Same id, created and model in each, and one choice."""
    writer = ChunkWriter(head(kind), Source(IDS), lambda: USAGE)
    body = writer.first(1) + writer.delta(Delta(0, "a", [5], None)) + writer.usage()

    chunks = events(body)

    assert len(chunks) == (2 if kind is Kind.CHAT else 1)
    assert {(chunk["id"], chunk["created"], chunk["model"], len(chunk["choices"])) for chunk in chunks} == {
        ("id-1", 99, "m", 1)
    }
    assert not any("usage" in chunk for chunk in chunks)


def test_only_the_first_chat_delta_has_a_role() -> None:
    """And only the last a reason, with an empty delta where no text is left."""
    writer = ChunkWriter(head(Kind.CHAT), Source(IDS), lambda: USAGE)
    body = writer.first(1) + writer.delta(Delta(0, "a", [5], None))
    body += writer.delta(Delta(0, "", [], "stop"))

    choices = [chunk["choices"][0] for chunk in events(body)]

    assert [choice["delta"] for choice in choices] == [{"role": "assistant", "content": ""}, {"content": "a"}, {}]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]


def test_usage_asked_for_comes_alone_and_last() -> None:
    """All other chunks carry a null for it."""
    writer = ChunkWriter(head(Kind.COMPLETION, include_usage=True), Source(IDS), lambda: USAGE)

    first, last = events(writer.delta(Delta(0, "a", [5], "stop")) + writer.usage())

    assert (first["usage"], last["choices"], last["usage"]) == (None, [], USAGE_JSON)


def test_continuous_usage_is_in_every_chunk() -> None:
    """The running count of that moment."""
    writer = ChunkWriter(head(Kind.CHAT, include_usage=True, continuous_usage=True), Source(IDS), lambda: USAGE)

    chunks = events(writer.first(1) + writer.delta(Delta(0, "a", [5], None)))

    assert [chunk["usage"] for chunk in chunks] == [USAGE_JSON, USAGE_JSON]


def test_usage_is_counted_only_for_those_who_read_it() -> None:
    """Summing it over all prompts and choices costs each token."""
    counted: list[Usage] = []

    def count() -> Usage:
        counted.append(USAGE)
        return USAGE

    for asked in (head(Kind.CHAT), head(Kind.CHAT, include_usage=True)):
        writer = ChunkWriter(asked, Source(IDS), count)
        writer.first(1)
        writer.delta(Delta(0, "a", [5], None))

    assert counted == []


@pytest.mark.parametrize("kind", list(Kind))
def test_streamed_token_ids_come_with_their_text(kind: Kind) -> None:
    """The prompt's ids once, with the first chunk."""
    writer = ChunkWriter(head(kind, return_token_ids=True), Source(IDS), lambda: USAGE)
    body = writer.first(1) + writer.delta(Delta(0, "a", [5], None))
    body += writer.delta(Delta(0, "b", [6, 7], "stop"))

    chunks = events(body)

    holders = [chunk if kind is Kind.CHAT else chunk["choices"][0] for chunk in chunks]
    assert [holder.get("prompt_token_ids") for holder in holders] == [[1, 2]] + [None] * (len(chunks) - 1)
    assert [chunk["choices"][0].get("token_ids") for chunk in chunks[-2:]] == [[5], [6, 7]]


@given(st.text())
def test_any_text_survives_a_chunk(text: str) -> None:
    """One event of one line, whatever the text holds: line breaks, quotes, control characters."""
    body = ChunkWriter(head(Kind.COMPLETION), Source(IDS), lambda: USAGE).delta(Delta(0, text, [5], None))

    assert body.startswith(b"data: ") and body.endswith(b"\n\n") and body.count(b"\n") == 2
    assert json.loads(body[6:])["choices"][0]["text"] == text
