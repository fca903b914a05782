"""The official client talks to a running stack as it does to its own service."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import openai
import pydantic
import pytest

from tests.e2e.conftest import Stack

pytestmark = pytest.mark.e2e
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
async def client(hybrid: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=hybrid.base_url, api_key="none", max_retries=0) as made:
        yield made


async def test_chat_answers_with_usage(hybrid: Stack, client: openai.AsyncOpenAI) -> None:
    """A whole chat answer names its model, why it ended and what it cost."""
    answer = await client.chat.completions.create(model=hybrid.model, messages=CAPITAL, max_tokens=24, temperature=0)  # type: ignore[arg-type]

    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage and answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_chat_streams_what_it_would_answer_whole(hybrid: Stack, client: openai.AsyncOpenAI) -> None:
    """The joined deltas and the last usage equal the answer in one piece; the second time the prompt is cached."""
    asked = {"model": hybrid.model, "messages": CAPITAL, "max_tokens": 24, "temperature": 0}
    whole = await client.chat.completions.create(**asked)  # type: ignore[call-overload]
    chunks = [
        chunk
        async for chunk in await client.chat.completions.create(  # type: ignore[call-overload]
            **asked, stream=True, stream_options={"include_usage": True}
        )
    ]

    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert len({chunk.id for chunk in chunks}) == 1
    usage = chunks[-1].usage
    assert chunks[-1].choices == []
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert usage.prompt_tokens_details.cached_tokens > 0


async def test_completions_take_text_and_ids(hybrid: Stack, client: openai.AsyncOpenAI) -> None:
    """The same prompt as text and as its ids gives the same text, streamed and whole."""
    extra = {"return_token_ids": True}
    asked = {"model": hybrid.model, "max_tokens": 12, "temperature": 0, "extra_body": extra}
    by_text = await client.completions.create(prompt="The three primary colours are", **asked)  # type: ignore[call-overload]
    ids = by_text.choices[0].prompt_token_ids
    by_ids = await client.completions.create(prompt=ids, **asked)  # type: ignore[call-overload]
    stream = await client.completions.create(prompt=ids, stream=True, **asked)  # type: ignore[call-overload]

    streamed = "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])

    assert by_text.choices[0].text == by_ids.choices[0].text == streamed
    assert by_text.usage.completion_tokens == len(by_text.choices[0].token_ids)


async def test_a_stop_string_ends_the_text_before_it(hybrid: Stack, client: openai.AsyncOpenAI) -> None:
    """What follows the stop string is never seen, and usage counts to the token that completed it."""
    asked = {"model": hybrid.model, "prompt": "1, 2, 3, 4, 5, 6,", "max_tokens": 32, "temperature": 0}
    free = await client.completions.create(**asked)  # type: ignore[call-overload]
    stop = free.choices[0].text[6:10]
    cut = await client.completions.create(**asked, stop=stop)  # type: ignore[call-overload]

    assert cut.choices[0].text == free.choices[0].text[: free.choices[0].text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.completion_tokens < free.usage.completion_tokens


async def test_a_seed_makes_sampling_repeatable(hybrid: Stack, client: openai.AsyncOpenAI) -> None:
    """The same seed draws the same text; another seed another one."""
    asked = {"model": hybrid.model, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 1.0}
    texts = [
        (await client.completions.create(**asked, seed=seed)).choices[0].text  # type: ignore[call-overload]
        for seed in (7, 7, 8)
    ]

    assert texts[0] == texts[1] != texts[2]


async def test_the_models_list_names_the_model(hybrid: Stack, client: openai.AsyncOpenAI) -> None:
    """With its context length, as vLLM's clients read it."""
    listed = [model async for model in await client.models.list()]

    assert [model.id for model in listed] == [hybrid.model]
    assert listed[0].model_dump()["max_model_len"] > 0


@pytest.mark.parametrize(
    "body, error",
    [
        ({"model": "no-such-model"}, openai.NotFoundError),
        ({"messages": []}, openai.BadRequestError),
        ({"temperature": 7}, openai.BadRequestError),
        ({"n": 0}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "word " * 9000}]}, openai.BadRequestError),
    ],
    ids=["model", "messages", "temperature", "n", "context"],
)
async def test_bad_requests_are_typed_errors(
    hybrid: Stack, client: openai.AsyncOpenAI, body: dict[str, object], error: type[openai.APIStatusError]
) -> None:
    """Each is refused with the field to blame, and nothing stays behind."""
    asked = {"model": hybrid.model, "messages": CAPITAL, "max_tokens": 4, **body}

    with pytest.raises(error) as raised:
        await client.chat.completions.create(**asked)  # type: ignore[call-overload]

    assert isinstance(raised.value.body, dict) and raised.value.body["message"]
    status = hybrid.status()
    assert (status["blocks"]["held"], status["waiting"], status["running"]) == (0, 0, 0)


class Capital(pydantic.BaseModel):
    """What the client makes a strict schema of."""

    model_config = pydantic.ConfigDict(extra="forbid")

    city: str = pydantic.Field(max_length=20)
    country: Literal["France", "Italy"]
    inhabitants: int = pydantic.Field(ge=0, le=99_999_999)


async def test_parse_answers_with_an_object_of_its_class(hybrid: Stack, client: openai.AsyncOpenAI) -> None:
    """A schema made of a class, strict: whatever the model would write, its fields are there and of their types."""
    asked: dict[str, Any] = {"model": hybrid.model, "messages": CAPITAL, "max_tokens": 96, "temperature": 0}
    answer = await client.chat.completions.parse(**asked, response_format=Capital)

    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(answer.choices[0].message.parsed, Capital)


async def test_a_choice_comes_byte_for_byte(hybrid: Stack, client: openai.AsyncOpenAI) -> None:
    """Characters that take several tokens, streamed and whole."""
    text = "🐈 猫 🧑‍🚀 龜"
    asked: dict[str, Any] = {"model": hybrid.model, "messages": CAPITAL, "max_tokens": 32, "temperature": 0}
    asked["extra_body"] = {"structured_outputs": {"choice": [text]}}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(**asked, stream=True)

    assert whole.choices[0].message.content == text
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == text
