"""The gRPC door: headrace.v1.Inference. Messages in and out, the caller's key, errors as statuses.

A call whose client cancels it, or whose deadline passes, is cancelled by the server in the middle of its method here:
whatever it had under way is then taken back, as for a closed HTTP connection.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
import grpc.aio

from libs.contracts import codec
from libs.contracts.errors import HeadraceError, Unauthorized
from libs.contracts.messages import (
    GenerateChunk,
    GenerateRequest,
    ListModelsRequest,
    ListModelsResponse,
    ServedModel,
    TokenizeRequest,
    TokenizeResponse,
)
from libs.runtime.logs import get_logger
from services.gateway.batch import merged
from services.gateway.errors_grpc import status_of, trailers_of
from services.gateway.keys import Caller, Keys
from services.gateway.respond import gathered
from services.gateway.rpc_reply import Chunks, response
from services.gateway.rpc_request import http_body, tokenize_body
from services.gateway.server import UNREAD_TIMEOUT_S
from services.gateway.service import Origin, Service, all_accounted, check_open, new_request_id, open_streams, queue
from services.gateway.stream import ClientGone, Stream
from services.gateway.tokens import TokenizerClient, prompt_to_tokenize

TRACE_KEY = "x-headrace-trace"

Context = grpc.aio.ServicerContext[bytes, bytes]
R = TypeVar("R")

log = get_logger("gateway")


class Inference:
    """`handler` is what a server adds."""

    name = "headrace.v1.Inference"

    def __init__(self, service: Service, keys: Keys, tokenizer: TokenizerClient) -> None:
        self._service, self._keys, self._tokenizer = service, keys, tokenizer
        self._created_unix_s = int(time.time())

    @property
    def handler(self) -> "grpc.GenericRpcHandler[Any, Any]":
        unary = {"Generate": self._generate, "Tokenize": self._tokenize, "ListModels": self._list_models}
        methods: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(partial(self._answered, method)) for name, method in unary.items()
        }
        stream = partial(self._answered, self._generate_stream)
        methods["GenerateStream"] = grpc.unary_stream_rpc_method_handler(stream)
        return grpc.method_handlers_generic_handler(self.name, methods)

    async def _answered(
        self, method: Callable[[bytes, Caller, Context], Awaitable[R]], payload: bytes, context: Context
    ) -> R:
        """What the method returns, or its error as a status; nobody else's caller gets that far."""
        try:
            return await method(payload, self._caller(context), context)
        except HeadraceError as error:
            failure = error
        except ClientGone:
            failure = HeadraceError("the client takes nothing")
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            log.error("call_crashed", exc_info=error)
            failure = HeadraceError("internal error")
        await context.abort(status_of(failure), failure.message, trailers_of(failure))
        raise AssertionError("abort raises")

    def _caller(self, context: Context) -> Caller:
        """Raises Unauthorized, Barred, Refused."""
        try:
            caller = self._keys.bearer(_metadata(context, "authorization").encode(), _address(context.peer()))
        except Unauthorized:
            raise Unauthorized("a valid API key is needed: metadata authorization: Bearer KEY") from None
        caller.check_scope("inference")
        return caller

    async def _generate(self, payload: bytes, caller: Caller, context: Context) -> bytes:
        async with self._opened(payload, caller, context, stream=False) as streams:
            choices = [await gathered(stream) for stream in streams]
            for stream in streams:
                stream.observer.told()
            return codec.encode(response(streams, choices))

    async def _generate_stream(self, payload: bytes, caller: Caller, context: Context) -> None:
        async with self._opened(payload, caller, context, stream=True) as streams:
            chunks = Chunks(streams)
            async for stream, delta in merged(streams):
                text_ns, is_first = time.monotonic_ns(), not chunks.has_begun(stream)
                await _write(context, chunks.next(stream, delta))
                if is_first:
                    stream.observer.wrote(text_ns)
            for stream in streams:
                stream.observer.told()

    async def _tokenize(self, payload: bytes, caller: Caller, context: Context) -> bytes:
        request = codec.decode(TokenizeRequest, payload)
        limits = self._service.catalog.of(request.model)
        prompt = prompt_to_tokenize(tokenize_body(request))
        ids = await self._tokenizer.ids(
            limits.model, prompt, add_special_tokens=request.add_special_tokens is not False
        )
        return codec.encode(TokenizeResponse(ids, limits.max_model_len))

    async def _list_models(self, payload: bytes, caller: Caller, context: Context) -> bytes:
        codec.decode(ListModelsRequest, payload)
        service, created_unix_s = self._service, self._created_unix_s
        served = (model.limits for model in service.catalog if service.door.serves(model.name))
        models = tuple(ServedModel(limits.model, limits.max_model_len, created_unix_s) for limits in served)
        return codec.encode(ListModelsResponse(models))

    @asynccontextmanager
    async def _opened(
        self, payload: bytes, caller: Caller, context: Context, *, stream: bool
    ) -> AsyncIterator[tuple[Stream, ...]]:
        """A stream for each prompt of a request, on their way until the block has told its client all of it.

        Raises HeadraceError.
        """
        service, arrived_s = self._service, asyncio.get_running_loop().time()
        check_open(service, caller)
        kind, body = http_body(codec.decode(GenerateRequest, payload), stream=stream, left_s=context.time_remaining())
        traceparent, trace_key = _metadata(context, "traceparent"), _metadata(context, TRACE_KEY)
        origin = Origin(caller, arrived_s, traceparent, trace_key.encode())
        request_id = new_request_id(kind)
        streams = open_streams(service, kind, body, request_id, origin)
        async with all_accounted(service, streams):
            for opened in streams:
                await queue(service, opened, caller)
            name = streams[0].request.client_id or request_id
            await context.send_initial_metadata((("x-request-id", name),))
            yield streams


def _metadata(context: Context, name: str) -> str:
    """Empty where it is missing, or bytes."""
    found: Iterable[tuple[str, str | bytes]] = context.invocation_metadata() or ()
    value = dict(found).get(name, "")
    return value if isinstance(value, str) else ""


def _address(peer: str) -> str:
    """Of `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000` the address alone."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer


async def _write(context: Context, chunk: GenerateChunk) -> None:
    """Returns when the transport has taken it. Raises ClientGone for a client that takes nothing for long."""
    try:
        async with asyncio.timeout(UNREAD_TIMEOUT_S):
            await context.write(codec.encode(chunk))
    except TimeoutError as error:
        raise ClientGone from error
