"""What every door does with a request, whatever its client speaks: let in, check, queue, count how it ended."""

import asyncio
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from libs.contracts.errors import HeadraceError, InvalidRequest
from libs.runtime.logs import get_logger
from libs.runtime.quota import Quota
from libs.runtime.ring import OFF, Ring
from services.gateway.catalog import Catalog
from services.gateway.charges import Charges
from services.gateway.crowd import Standing
from services.gateway.door import Door
from services.gateway.hub import Hub
from services.gateway.keys import Caller
from services.gateway.metrics import Metrics
from services.gateway.observe import ClientTrace, Observer
from services.gateway.stream import ClientGone, Stream
from services.gateway.validate import Kind, ValidRequest, validate
from services.gateway.wire import Ticket

ID_PREFIX = {Kind.CHAT: "chatcmpl-", Kind.COMPLETION: "cmpl-"}

log = get_logger("gateway")


@dataclass(frozen=True, slots=True)
class Service:
    """What all doors work with."""

    gateway: str
    door: Door
    hub: Hub
    metrics: Metrics
    catalog: Catalog
    max_body_bytes: int
    request_timeout_s: float
    charges: Charges
    ring: Ring = OFF
    sample_key: bytes = b""  # whoever sends it has the trace exported; empty: nobody


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from; `arrived_s` is on the event loop's clock."""

    caller: Caller
    arrived_s: float
    traceparent: str = ""  # the client's own
    trace_key: bytes = b""
    request_id: str = ""  # what the client's own header calls the request


def new_request_id(kind: Kind) -> str:
    return ID_PREFIX[kind] + secrets.token_hex(16)


def check_open(service: Service, caller: Caller) -> None:
    """Whether one more request may come in, before anything of it is read. Raises Unavailable, Crowded."""
    service.door.check()
    service.hub.check_room(Standing(caller.tenant, caller.first_priority))


def open_chat(service: Service, payload: bytes, request_id: str, origin: Origin) -> Stream:
    """The chat in a JSON body, its bounds kept, that is to be streamed.

    Raises: InvalidRequest, ModelNotFound, ContextTooLong; Unavailable where no cell serves its model.
    """
    stream, *others = open_streams(service, Kind.CHAT, payload, request_id, origin)
    assert not others, "a chat has one prompt"
    if not stream.request.stream:
        raise InvalidRequest("the answer comes in chunks here: send stream: true", param="stream")
    return stream


def open_streams(service: Service, kind: Kind, payload: bytes, request_id: str, origin: Origin) -> tuple[Stream, ...]:
    """One for each prompt of the request in a JSON body. Raises as open_chat does."""
    read_ns = time.monotonic_ns()
    request = validate(kind, payload, service.catalog, first_priority=origin.caller.first_priority)
    service.door.check(request.model)
    first = _opened(service, request, request_id, origin, read_ns)
    others = enumerate(request.more, 1)
    return (first, *(_opened(service, other, f"{request_id}-{n}", origin, read_ns) for n, other in others))


def _opened(service: Service, request: ValidRequest, request_id: str, origin: Origin, read_ns: int) -> Stream:
    is_wanted = bool(service.sample_key) and hmac.compare_digest(origin.trace_key, service.sample_key)
    client = ClientTrace(origin.traceparent, is_wanted)
    observer = Observer(request_id, request, service.metrics.of(request.model), origin.arrived_s, client, service.ring)
    is_timed = 0 < request.timeout_s < service.request_timeout_s
    timeout_s = request.timeout_s if is_timed else service.request_timeout_s
    ticket = Ticket(
        request_id=request_id,
        gateway=service.gateway,
        deadline_s=origin.arrived_s + timeout_s,
        deadline_unix_ms=int((time.time() + timeout_s) * 1000),
        tenant=origin.caller.tenant,
        is_timed=is_timed,
    )
    stream = Stream(ticket, request, service.catalog.model(request.model).tokenizer, observer)
    observer.record.read_ns, observer.record.validated_ns = read_ns, time.monotonic_ns()
    return stream


async def queue(service: Service, stream: Stream, caller: Caller) -> Quota | None:
    """Send the request on; what it leaves of its key's quota, if that has one.

    Raises RateLimited, Overloaded, Unavailable, Refused.
    """
    try:
        quota = await service.charges.take(stream, caller)
        await service.hub.send(stream)
    except HeadraceError:
        service.metrics.of(stream.request.model).rejections.inc()
        raise
    stream.observer.record.queued_ns = time.monotonic_ns()
    return quota


@asynccontextmanager
async def all_accounted(service: Service, streams: Sequence[Stream]) -> AsyncIterator[None]:
    """As `accounted`, for all prompts of one request."""
    async with AsyncExitStack() as stack:
        for stream in streams:
            await stack.enter_async_context(accounted(service, stream))
        yield


@asynccontextmanager
async def accounted(service: Service, stream: Stream) -> AsyncIterator[None]:
    """The block queues a stream and tells its client. How that ends is counted, and what is left is cancelled."""
    outcome, code = "error", "internal"
    try:
        yield
        outcome, code = stream.choices[0].reason, ""
    except (ClientGone, asyncio.CancelledError):
        outcome, code = "abort", "client_gone"
        raise
    except HeadraceError as error:
        code = error.code
        raise
    finally:
        service.hub.abandon(stream, ClientGone())
        service.charges.settle(stream)
        usage, now_s = stream.usage, asyncio.get_running_loop().time()
        stream.observer.end(outcome, usage, now_s, error=code)
        log.info(
            "request",
            request_id=stream.request_id,
            outcome=outcome,
            code=code,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
        )
