"""Log-probabilities in answers: of tokens, streamed or not, and of prompts, over a fake bus."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from libs.contracts.messages import Accepted, Delivered, PromptScores, Request, StopAt
from services.gateway.notes import Note, TokenNames, notes_of
from tests.unit.gateway.asgi import Call, events, text_of
from tests.unit.gateway.backend import CELL, EOS, TERM, ByteTokenizer
from tests.unit.gateway.conftest import Gateway

PROMPT = b"hey"
SCORES = PromptScores(1, (-0.5, -0.25), (1, 3), (101, 7, 8, 9), (-0.5, -1.0, -0.125, -0.25))


async def play(
    gateway: Gateway, ids: Sequence[int], end: str, tops: int, scores: PromptScores | None = None
) -> Request:
    """Accept, send a frame a token with log-probabilities that its position decides, and answer for the prompt."""
    request = await gateway.taken()
    if scores is not None:
        gateway.backend.scores[request.request_id] = scores
    prompt_ids = tuple(PROMPT) if request.echo_ids else ()
    await gateway.backend.reply(Accepted(request.request_id, 1, CELL, len(PROMPT), prompt_ids))
    for position, token_id in enumerate(ids):
        last = end if position == len(ids) - 1 else ""
        told: dict[str, Any] = {}
        if request.params.logprobs >= 0:
            top_logprobs = tuple(-position - n / 4 for n in range(tops))
            told = {"logprobs": (-position / 2,), "top_ids": tuple(range(65, 65 + tops)), "top_logprobs": top_logprobs}
        await gateway.backend.tokens(request, position, [token_id], last, **told)
        await asyncio.sleep(0)
    return request


async def both(gateway: Gateway, call: Any, ids: Sequence[int], end: str, tops: int, **fields: Any) -> list[Any]:
    """The choice of a whole answer, and the chunks of a streamed one."""
    whole: Call = call(**fields)
    await play(gateway, ids, end, tops)
    streamed: Call = call(**fields, stream=True)
    await play(gateway, ids, end, tops)
    return [(await whole.json())["choices"][0], events(await streamed.whole())[:-1]]


async def test_a_chat_has_an_entry_a_token(gateway: Gateway) -> None:
    """Name, bytes, and the likeliest in its place; a control token has no bytes. The stream has the same entries."""
    ids = [*"é!".encode(), EOS]

    choice, chunks = await both(gateway, gateway.chat, ids, "stop", 2, logprobs=True, top_logprobs=2, max_tokens=9)

    entries = choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["bytes:\\xc3", "bytes:\\xa9", "!", "<end>"]
    assert [entry["bytes"] for entry in entries] == [[0xC3], [0xA9], [33], None]
    assert [entry["logprob"] for entry in entries] == [0, -0.5, -1, -1.5]
    assert entries[1]["top_logprobs"] == [
        {"token": "A", "logprob": -1.0, "bytes": [65]},
        {"token": "B", "logprob": -1.25, "bytes": [66]},
    ]
    streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [entry for told in streamed if told for entry in told["content"]] == entries
    assert streamed[0] is None  # of the role


async def test_a_completion_has_four_lists(gateway: Gateway) -> None:
    """All of one length; offsets are running lengths; the token itself is among the likeliest."""
    choice, chunks = await both(gateway, gateway.complete, b"a b", "length", 1, logprobs=1, max_tokens=3)

    assert choice["logprobs"] == {
        "tokens": ["a", " ", "b"],
        "token_logprobs": [0, -0.5, -1],
        "top_logprobs": [{"A": 0, "a": 0}, {"A": -1, " ": -0.5}, {"A": -2, "b": -1}],
        "text_offset": [0, 1, 2],
    }
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert {name: [x for part in parts for x in part[name]] for name in choice["logprobs"]} == choice["logprobs"]


@pytest.mark.parametrize(
    ("fields", "tops"), [({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 0}, 0), ({}, 0)]
)
async def test_without_a_number_there_are_no_others(gateway: Gateway, fields: dict[str, Any], tops: int) -> None:
    """logprobs: true alone is the token's own; nobody who did not ask gets any."""
    choice, _ = await both(gateway, gateway.chat, b"ab", "length", tops, max_tokens=2, **fields)

    expected: list[list[Any]] | None = [[], []] if fields else None
    assert (choice["logprobs"] and [e["top_logprobs"] for e in choice["logprobs"]["content"]]) == expected


async def test_tokens_may_be_called_by_their_ids(gateway: Gateway) -> None:
    """return_tokens_as_token_ids: no two tokens have one name."""
    choice, _ = await both(
        gateway, gateway.complete, b"a", "length", 1, logprobs=1, max_tokens=1, return_tokens_as_token_ids=True
    )

    assert choice["logprobs"]["tokens"] == ["token_id:97"]
    assert set(choice["logprobs"]["top_logprobs"][0]) == {"token_id:65", "token_id:97"}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_echoed_prompt_comes_with_its_scores(gateway: Gateway, stream: bool) -> None:
    """As evaluators read it: lists over prompt and answer, null first, fetched once a token is here."""
    call = gateway.complete(prompt="hey", echo=True, logprobs=2, max_tokens=1, stream=stream)
    request = await play(gateway, b"!", "length", 2, SCORES)
    if stream:
        (chunk, done) = events(await call.whole())
        choice = chunk["choices"][0]
        assert done == "[DONE]"
    else:
        choice = (await call.json())["choices"][0]

    assert choice["text"] == "hey!"
    assert choice["logprobs"]["tokens"] == ["h", "e", "y", "!"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5, -0.25, 0]
    assert choice["logprobs"]["top_logprobs"][:3] == [
        None,
        {"e": -0.5, "\x07": -1.0},
        {"\x08": -0.125, "\t": -0.25, "y": -0.25},
    ]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert (request.params.prompt_logprobs, request.params.logprobs, request.echo_ids) == (2, 2, True)


async def test_nothing_but_the_prompt_may_be_asked_for(gateway: Gateway) -> None:
    """max_tokens 0 with echo: the prompt's text and scores, and no token is told or counted."""
    call = gateway.complete(prompt="hey", echo=True, logprobs=0, max_tokens=0)
    request = await play(gateway, b"!", "length", 0, PromptScores(1, (-0.5, -0.25), (1, 3), (), ()))
    body = await call.json()

    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"], body["usage"]["completion_tokens"]) == ("hey", "length", 0)
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5, -0.25]
    assert choice["logprobs"]["top_logprobs"] == [None, {"e": -0.5}, {"y": -0.25}]
    assert request.params.max_tokens == 1
    assert (await gateway.backend.told(Delivered)).totals == (1,)


async def test_prompt_logprobs_have_ranks(gateway: Gateway) -> None:
    """In vLLM's shape: by id, null for the first; in a chat beside the choices."""
    call = gateway.complete(prompt="hey", prompt_logprobs=2, max_tokens=1)
    await play(gateway, b"!", "length", 0, SCORES)
    (choice,) = (await call.json())["choices"]

    assert choice["prompt_logprobs"] == [
        None,
        {
            "101": {"logprob": -0.5, "rank": 1, "decoded_token": "e"},
            "7": {"logprob": -1.0, "rank": 2, "decoded_token": "\x07"},
        },
        {
            "121": {"logprob": -0.25, "rank": 3, "decoded_token": "y"},
            "8": {"logprob": -0.125, "rank": 1, "decoded_token": "\x08"},
            "9": {"logprob": -0.25, "rank": 2, "decoded_token": "\t"},
        },
    ]
    assert choice["logprobs"] is None and choice["text"] == "!"


async def test_scores_that_come_late_are_waited_for(gateway: Gateway) -> None:
    """In as many answers as it takes; nothing is told or delivered before."""
    call = gateway.complete(prompt="hey", echo=True, logprobs=0, max_tokens=1)
    request = await play(gateway, b"!", "length", 0)
    await asyncio.sleep(0.02)
    assert not call.task.done()
    gateway.backend.scores[request.request_id] = PromptScores(1, (-0.5,), (1,), (), ())
    await asyncio.sleep(0.05)
    assert not call.task.done()
    gateway.backend.scores[request.request_id] = PromptScores(2, (-0.25,), (3,), (), ())

    (choice,) = (await call.json())["choices"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5, -0.25, 0]


async def test_a_stop_is_told_once_the_prompt_is_scored(gateway: Gateway) -> None:
    """Should the worker be lost before it tells the scores, the scheduler has what it needs to compute them again."""
    call = gateway.complete(prompt="hey", prompt_logprobs=0, stop=["c"], max_tokens=9)
    request = await play(gateway, b"abc", "", 0)
    await asyncio.sleep(0.02)
    assert gateway.backend.control.empty()
    gateway.backend.scores[request.request_id] = PromptScores(1, (-0.5, -0.25), (1, 3), (), ())

    assert await gateway.backend.told(StopAt) == StopAt(request.request_id, 0, 2, TERM, 1)
    assert (await call.json())["choices"][0]["text"] == "ab"


async def test_a_chat_may_repeat_how_its_answer_begins(gateway: Gateway) -> None:
    """echo beside continue_final_message: the answer is whole."""
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Once "}]
    fields = {"messages": messages, "echo": True, "continue_final_message": True, "add_generation_prompt": False}
    choice, chunks = await both(gateway, gateway.chat, b"upon", "length", 0, max_tokens=4, **fields)

    assert choice["message"]["content"] == text_of(chunks) == "Once upon"


def test_names_are_text_or_bytes() -> None:
    """What is no UTF-8 alone is spelled, so that no two tokens look alike."""
    names = TokenNames(ByteTokenizer())

    assert [names.name(i) for i in (65, 0xF0, EOS)] == ["A", "bytes:\\xf0", "<end>"]
    assert [names.bytes(i) for i in (65, 0xF0, EOS)] == [[65], [0xF0], None]


def test_notes_are_cut_from_columns() -> None:
    """As many of the likeliest for each as there are in all, shared out evenly."""
    assert notes_of((-1.0, -2.0), (1, 2, 3, 4), (-0.1, -0.2, -0.3, -0.4)) == [
        Note(-1.0, (1, 2), (-0.1, -0.2)),
        Note(-2.0, (3, 4), (-0.3, -0.4)),
    ]
    assert notes_of((), (), ()) == [] and notes_of((-1.0,), (), (), (7,)) == [Note(-1.0, rank=7)]
