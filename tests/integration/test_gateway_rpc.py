"""The gRPC door with an ordinary grpcio client: whole, streamed, cancelled, late, refused; health and reflection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from libs.contracts import codec, flow
from libs.contracts.messages import (
    Cancel,
    ChatMessage,
    Delivered,
    GenerateChunk,
    GenerateRequest,
    GenerateResponse,
    ListModelsRequest,
    ListModelsResponse,
    RawPrompt,
    ServedModel,
    TokenIds,
    TokenizeRequest,
    TokenizeResponse,
)
from services.gateway.backoff import WRONG_KEYS
from services.gateway.rpc import Inference
from tests.fakes.collector import Collector
from tests.integration.gateway_stage import KEY, MAX_MODEL_LEN, Stack, gateway_stage, ids_of
from tests.integration.servers import NatsServer, free_port
from tests.unit.gateway.backend import MODEL, PROMPT_IDS
from tests.unit.text.small_model import EOS

pytestmark = pytest.mark.integration

HI = (ChatMessage("user", "hi"),)


@dataclass(frozen=True, slots=True)
class Client:
    """A channel to a listener; `metadata` goes with every call."""

    channel: Any
    metadata: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {KEY}"),)

    def call(self, method: str, request: Any, answer: type[Any], **options: Any) -> Any:
        unary = self.channel.unary_unary(
            f"/{Inference.name}/{method}", codec.encode, lambda payload: codec.decode(answer, payload)
        )
        return unary(request, metadata=self.metadata, **options)

    def stream(self, request: GenerateRequest, **options: Any) -> Any:
        stream = self.channel.unary_stream(
            f"/{Inference.name}/GenerateStream", codec.encode, lambda payload: codec.decode(GenerateChunk, payload)
        )
        return stream(request, metadata=self.metadata, **options)

    async def health(self) -> int:
        stub = health_pb2_grpc.HealthStub(self.channel)
        return int((await stub.Check(health_pb2.HealthCheckRequest(service=Inference.name))).status)


@dataclass(frozen=True, slots=True)
class Doors:
    stack: Stack
    port: int
    admin_port: int

    @asynccontextmanager
    async def dialled(self, port: int = 0, **more: Any) -> AsyncIterator[Client]:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port or self.port}", options=options) as channel:
            yield Client(channel, **more)


@pytest.fixture
async def doors(own_nats_server: NatsServer, traces: Collector, tmp_path: Path) -> AsyncIterator[Doors]:
    """A gateway with both gRPC listeners."""
    port, admin_port = free_port(), free_port()
    ports = {"GRPC_PORT": str(port), "GRPC_ADMIN_PORT": str(admin_port)}
    async with gateway_stage(own_nats_server, traces, tmp_path, **ports) as running:
        yield Doors(running, port, admin_port)


async def status_of(call: Any) -> tuple[grpc.StatusCode, dict[str, Any]]:
    """How a call failed: its status, and what its trailing metadata tells."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    trailing: Any = raised.value.trailing_metadata() or ()
    return raised.value.code(), dict(trailing)


async def test_a_chat_and_a_completion_come_whole(doors: Doors) -> None:
    """Text, ids, reason and usage; the fields are those of the HTTP body."""
    async with doors.dialled() as client:
        call = client.call("Generate", GenerateRequest(MODEL, messages=HI, temperature=0.0), GenerateResponse)
        request = await doors.stack.answer([*ids_of("héllo"), EOS], "stop")
        answer = await call
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("héllo", "stop")
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 7)
        assert answer.request_id == request.request_id == dict(await call.initial_metadata())["x-request-id"]
        assert request.params.temperature == 0.0 and request.prompt.kind == "chat"

        call = client.call(
            "Generate", GenerateRequest(MODEL, prompt_ids=(5, 6), max_tokens=2, seed=7), GenerateResponse
        )
        request = await doors.stack.answer(ids_of("ab"), "length")
        answer = await call
        assert (answer.choices[0].text, answer.choices[0].token_ids) == ("ab", tuple(ids_of("ab")))
        assert (request.prompt.ids, request.params.max_tokens, request.params.seed) == ((5, 6), 2, 7)
        assert (await doors.stack.backend.told(Delivered)).request_id != request.request_id

        several = GenerateRequest(MODEL, prompts=(RawPrompt("x"), RawPrompt(ids=(5,))), max_tokens=1, echo=True)
        call = client.call("Generate", several, GenerateResponse)
        for text in "ab":
            await doors.stack.answer(ids_of(text), "length")
        answer = await call
        assert [(one.index, one.text[-1]) for one in answer.choices] == [(0, "a"), (1, "b")]
        assert answer.choices[0].text == "xa" and [one.token_ids for one in answer.prompts] == [PROMPT_IDS] * 2


async def test_tokens_stream_as_they_come_and_a_cancelled_call_is_cancelled(doors: Doors) -> None:
    """A chunk is here before the next token is generated; then the client cancels."""
    async with doors.dialled() as client:
        call = client.stream(GenerateRequest(MODEL, prompt="x", max_tokens=200, logprobs=2, request_id="mine"))
        request = await doors.stack.accepted()
        assert dict(await call.initial_metadata())["x-request-id"] == "mine" and request.params.logprobs == 2
        for position, text in enumerate("abc"):
            told: dict[str, Any] = {"logprobs": (-0.5,), "top_ids": (7, position), "top_logprobs": (-0.25, -1.0)}
            await doors.stack.backend.tokens(request, position, ids_of(text), **told)
            chunk = await asyncio.wait_for(call.read(), 10)
            assert (chunk.delta.text, chunk.usage.completion_tokens) == (text, position + 1)
            delta = chunk.delta
            assert {name: getattr(delta, name) for name in told} == told
        call.cancel()

        cancel = await asyncio.wait_for(doors.stack.backend.told(Cancel), 2)
    assert cancel.request_id == request.request_id


async def test_a_calls_deadline_is_the_requests(doors: Doors) -> None:
    """It goes along to the scheduler, and when it passes the request is cancelled."""
    async with doors.dialled() as client:
        call = client.call("Generate", GenerateRequest(MODEL, prompt="x"), GenerateResponse, timeout=1.5)
        request = await doors.stack.accepted()
        code, _ = await status_of(call)
        cancel = await doors.stack.backend.told(Cancel)

    assert request.is_timed
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED and cancel.request_id == request.request_id


async def test_errors_are_statuses_with_code_and_field(doors: Doors) -> None:
    """A bad field, another model, no key: each with what an HTTP body would say."""
    async with doors.dialled() as client:
        bad = client.call("Generate", GenerateRequest(MODEL, prompt="x", temperature=9.0), GenerateResponse)
        code, told = await status_of(bad)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert (told["headrace-code"], told["headrace-param"]) == ("invalid_request", "temperature")
        assert told["grpc-retry-pushback-ms"] == "-1"
        for request in (GenerateRequest(MODEL), GenerateRequest(MODEL, prompt="x", prompt_ids=(1,))):
            assert (await status_of(client.stream(request).read()))[0] is grpc.StatusCode.INVALID_ARGUMENT
        other = client.call("Tokenize", TokenizeRequest("other", prompt="x"), TokenizeResponse)
        assert (await status_of(other))[0] is grpc.StatusCode.NOT_FOUND
        junk = client.channel.unary_unary(f"/{Inference.name}/Generate")
        assert (await status_of(junk(b"\xff", metadata=client.metadata)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    for metadata in ((), (("authorization", "Bearer wrong"),)):
        async with doors.dialled(metadata=metadata) as stranger:
            listed = stranger.call("ListModels", ListModelsRequest(), ListModelsResponse)
            assert (await status_of(listed))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_guesses_over_http_and_grpc_count_together(doors: Doors) -> None:
    """From one address; whose key was right from there before goes on, and a wrong one hears when to come again."""
    guess = (("authorization", "Bearer wrong"),)
    async with doors.dialled() as client, doors.dialled(metadata=guess) as guesser:
        await client.call("ListModels", ListModelsRequest(), ListModelsResponse)
        for _ in range(WRONG_KEYS):
            listed = guesser.call("ListModels", ListModelsRequest(), ListModelsResponse)
            assert (await status_of(listed))[0] is grpc.StatusCode.UNAUTHENTICATED
        headers = {"authorization": "Bearer wrong"}
        async with httpx.AsyncClient(base_url=doors.stack.base_url) as http:
            assert [(await http.get("/v1/models", headers=headers)).status_code for _ in range(2)] == [401, 429]
        code, told = await status_of(guesser.call("ListModels", ListModelsRequest(), ListModelsResponse))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and int(told["grpc-retry-pushback-ms"]) > 0
        await client.call("ListModels", ListModelsRequest(), ListModelsResponse)


async def test_models_and_ids_are_told(doors: Doors) -> None:
    """What /v1/models and /tokenize tell."""

    async def answer(payload: bytes, traceparent: str) -> bytes:
        return codec.encode_in("TokenizeReply", TokenIds((5, 6)))

    await doors.stack.bus.serve(flow.tokenize_subject(MODEL), answer)
    async with doors.dialled() as client:
        listed = await client.call("ListModels", ListModelsRequest(), ListModelsResponse)
        told = await client.call("Tokenize", TokenizeRequest(MODEL, prompt="hi"), TokenizeResponse)

    (model,) = listed.models
    assert model == ServedModel(MODEL, MAX_MODEL_LEN, model.created_unix_s)
    assert told == TokenizeResponse((5, 6), MAX_MODEL_LEN)


async def test_health_is_for_everybody_and_reflection_for_operators(doors: Doors) -> None:
    """Without a key: both listeners say whether they serve, and only the one on loopback what there is."""

    async def services(client: Client) -> list[str]:
        stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        asking = reflection_pb2.ServerReflectionRequest(list_services="")
        answer = await stub.ServerReflectionInfo(iter([asking])).read()
        return [service.name for service in answer.list_services_response.service]

    async with doors.dialled(metadata=()) as public, doors.dialled(doors.admin_port, metadata=()) as admin:
        assert await public.health() == await admin.health() == health_pb2.HealthCheckResponse.SERVING
        assert Inference.name in await services(admin)
        reflect = public.channel.unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        assert (await status_of(reflect(b"")))[0] is grpc.StatusCode.UNIMPLEMENTED
        listed = admin.call("ListModels", ListModelsRequest(), ListModelsResponse)
        assert (await status_of(listed))[0] is grpc.StatusCode.UNAUTHENTICATED
