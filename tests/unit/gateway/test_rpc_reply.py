"""Several prompts, echoes and scores over the gRPC door, whole and streamed, over a fake bus."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import pytest

from libs.contracts import codec
from libs.contracts.messages import (
    Cancel,
    GenerateChunk,
    GenerateRequest,
    GenerateResponse,
    PromptTokens,
    RawPrompt,
    Request,
    TokenUsage,
)
from services.gateway.keys import Keys
from services.gateway.rpc import Inference
from tests.unit.gateway.backend import MODEL, PROMPT_IDS
from tests.unit.gateway.conftest import Gateway
from tests.unit.gateway.test_batch import taken
from tests.unit.gateway.test_logprobs import PROMPT, SCORES, play


@dataclass
class Context:
    """One call, as far as its method looks at it."""

    written: list[GenerateChunk] = field(default_factory=list)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5000"

    def time_remaining(self) -> None:
        return None

    async def send_initial_metadata(self, metadata: Sequence[tuple[str, str]]) -> None:
        pass

    async def write(self, payload: bytes) -> None:
        self.written.append(codec.decode(GenerateChunk, payload))


def generate(gateway: Gateway, request: GenerateRequest) -> "asyncio.Task[GenerateResponse]":
    async def answer() -> GenerateResponse:
        return codec.decode(
            GenerateResponse, await method(gateway, "Generate").unary_unary(codec.encode(request), Context())
        )

    return asyncio.create_task(answer())


def generate_stream(gateway: Gateway, request: GenerateRequest) -> "asyncio.Task[list[GenerateChunk]]":
    async def answer() -> list[GenerateChunk]:
        context = Context()
        await method(gateway, "GenerateStream").unary_stream(codec.encode(request), context)
        return context.written

    return asyncio.create_task(answer())


@dataclass
class Details:
    method: str


def method(gateway: Gateway, name: str) -> Any:
    """What a server would call."""
    inference = Inference(gateway.service, Keys("", None), cast(Any, None))
    return inference.handler.service(cast(grpc.HandlerCallDetails, Details(f"/{inference.name}/{name}")))


async def answer_two(gateway: Gateway) -> list[Request]:
    """Two choices of two prompts, in an order of their own."""
    first, second = requests = await taken(gateway, 2)
    for request, choice, text in ((second, 1, b"ab"), (first, 0, b"cd"), (second, 0, b"ef"), (first, 1, b"gh")):
        await gateway.backend.tokens(request, 0, text, "length", choice=choice)
        await asyncio.sleep(0)
    return requests


TWO = GenerateRequest(MODEL, prompts=(RawPrompt("x"), RawPrompt(ids=(5, 6))), n=2, max_tokens=2, echo=True)


async def test_choices_are_numbered_prompt_by_prompt(gateway: Gateway) -> None:
    """As over HTTP: usage is of all, an echo before each text, and the prompts' ids in their order."""
    call = generate(gateway, TWO)
    requests = await answer_two(gateway)
    answer = await call

    told = "".join(map(chr, PROMPT_IDS))  # the ids that the tokenizer of this test has for every prompt
    assert [(one.index, one.text) for one in answer.choices] == [
        (0, "xcd"),
        (1, "xgh"),
        (2, told + "ef"),
        (3, told + "ab"),
    ]
    assert answer.prompts == (PromptTokens(PROMPT_IDS),) * 2
    assert answer.usage == TokenUsage(2 * len(PROMPT_IDS), 8, 0)
    assert answer.request_id == requests[0].request_id and requests[1].prompt.ids == (5, 6)


async def test_a_stream_tells_each_prompt_once(gateway: Gateway) -> None:
    """With the first delta of its choices; what is echoed goes before each choice's first text."""
    call = generate_stream(gateway, TWO)
    await answer_two(gateway)
    chunks = await call

    texts: dict[int, str] = {}
    for chunk in chunks:
        texts[chunk.delta.index] = texts.get(chunk.delta.index, "") + chunk.delta.text
    told = "".join(map(chr, PROMPT_IDS))
    assert texts == {0: "xcd", 1: "xgh", 2: told + "ef", 3: told + "ab"}
    assert [chunk.delta.index // 2 for chunk in chunks if chunk.prompt is not None] in ([0, 1], [1, 0])
    assert len({chunk.request_id for chunk in chunks}) == 1
    assert chunks[-1].usage == TokenUsage(2 * len(PROMPT_IDS), 8, 0)


@pytest.mark.parametrize("fields", [{"prompt_logprobs": 2}, {"echo": True, "logprobs": 2}])
async def test_scores_of_a_prompt_are_of_all_ids_but_the_first(gateway: Gateway, fields: dict[str, Any]) -> None:
    """Whichever way they are asked for; nobody hears of a prompt that was not asked about."""
    call = generate(gateway, GenerateRequest(MODEL, prompt="hey", max_tokens=1, **fields))
    await play(gateway, b"!", "length", 2, SCORES)

    answer = await call
    (prompt,), (choice,) = answer.prompts, answer.choices
    assert prompt == PromptTokens(tuple(PROMPT), SCORES.logprobs, SCORES.ranks, SCORES.top_ids, SCORES.top_logprobs)
    assert choice.text == ("hey!" if "echo" in fields else "!") and choice.token_ids == tuple(b"!")

    call = generate(gateway, GenerateRequest(MODEL, prompt="hey", max_tokens=1))
    await play(gateway, b"!", "length", 0)
    assert (await call).prompts == ()


async def test_a_cancelled_call_cancels_all_its_prompts(gateway: Gateway) -> None:
    """Each is a request of its own to the scheduler."""
    call = generate(gateway, TWO)
    requests = await taken(gateway, 2)
    call.cancel()

    cancelled = {(await gateway.backend.told(Cancel)).request_id for _ in requests}
    assert cancelled == {request.request_id for request in requests}
