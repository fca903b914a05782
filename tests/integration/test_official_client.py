"""The official client as most programs use it: without an event loop, and coming again when it is told to."""

import asyncio
import time
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from libs.contracts.errors import Unavailable, WireError
from tests.integration.gateway_stage import KEY, Stack, ids_of
from tests.unit.gateway.backend import MODEL

pytestmark = pytest.mark.integration

ASKED: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


async def test_a_program_without_a_loop_chats_and_streams(stack: Stack) -> None:
    """Whole and streamed, each with its usage."""
    with openai.OpenAI(base_url=f"{stack.base_url}/v1", api_key=KEY, max_retries=0, timeout=20) as client:

        def streamed() -> str:
            chunks = client.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True})
            return "".join(chunk.choices[0].delta.content or "" if chunk.choices else "|" for chunk in chunks)

        def in_one_piece() -> ChatCompletion:
            answer: ChatCompletion = client.chat.completions.create(**ASKED)
            return answer

        whole = asyncio.create_task(asyncio.to_thread(in_one_piece))
        await stack.answer(ids_of("abc"), "length")
        answer = await whole
        assert answer.choices[0].message.content == "abc" and answer.usage and answer.usage.completion_tokens == 3

        told = asyncio.create_task(asyncio.to_thread(streamed))
        await stack.answer(ids_of("abc"), "length")
        assert await told == "abc|"


async def test_it_comes_again_when_it_is_told_to_and_only_then(stack: Stack) -> None:
    """503 names a time and is tried again after it; an error that would come again is not."""
    async with openai.AsyncOpenAI(base_url=f"{stack.base_url}/v1", api_key=KEY, max_retries=2, timeout=20) as client:
        call = asyncio.create_task(client.chat.completions.create(**ASKED))
        first = await stack.accepted()
        started_s = time.monotonic()
        await stack.backend.fail(first, WireError.of(Unavailable("its worker is gone")))
        second = await stack.answer(ids_of("ok"), "length")

        assert (await call).choices[0].message.content == "ok" and second.request_id != first.request_id
        assert time.monotonic() - started_s > 0.7

        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(**ASKED, n=0)
        assert refused.value.response.headers["x-should-retry"] == "false" and stack.requests.empty()
