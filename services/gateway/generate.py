"""The two endpoints that generate: a body becomes a request, the request a stream, the stream a response."""

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass

from libs.contracts.errors import HeadraceError
from libs.runtime.logs import get_logger
from libs.runtime.ring import OFF, Ring
from libs.text.detokenize import TokenBytes
from services.gateway import reply
from services.gateway.auth import CALLER
from services.gateway.body import read_body
from services.gateway.door import Door
from services.gateway.hub import Hub
from services.gateway.keys import Caller
from services.gateway.metrics import Metrics
from services.gateway.observe import ClientTrace, Observer
from services.gateway.reply import Headers, Receive, Scope, Send
from services.gateway.respond import respond
from services.gateway.server import UNREAD_TIMEOUT_S
from services.gateway.stream import ClientGone, Stream, Ticket
from services.gateway.unread import while_read
from services.gateway.validate import Kind, Limits, ValidRequest, validate

TRACE_HEADER = b"x-headrace-trace"
CLOSE = (b"connection", b"close")

log = get_logger("gateway")


@dataclass(frozen=True, slots=True)
class Service:
    """What both endpoints work with."""

    gateway: str
    door: Door
    hub: Hub
    metrics: Metrics
    tokenizer: TokenBytes
    limits: Limits
    max_body_bytes: int
    request_timeout_s: float
    ring: Ring = OFF
    sample_key: bytes = b""  # whoever sends it has the trace exported; empty: nobody


class Generate:
    """One endpoint, as an ASGI app."""

    def __init__(self, kind: Kind, service: Service) -> None:
        self._kind = kind
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived_s = asyncio.get_running_loop().time()
        request_id = ("chatcmpl-" if self._kind is Kind.CHAT else "cmpl-") + secrets.token_hex(16)
        headers = ((b"x-request-id", request_id.encode()),)
        try:
            self._service.door.check()
            self._service.hub.check_room()
            payload = await read_body(scope, receive, max_bytes=self._service.max_body_bytes)
            read_ns = time.monotonic_ns()
            caller: Caller = scope[CALLER]
            request = validate(self._kind, payload, self._service.limits, first_priority=caller.first_priority)
        except ConnectionResetError:
            return
        except HeadraceError as error:
            # A connection that stays open would bring its next request to a server that is going away.
            closing = (CLOSE,) if self._service.door.is_shut and scope["http_version"].startswith("1") else ()
            await reply.error(send, error, (*headers, *closing))
            return
        stream = self._open(request_id, request, arrived_s, scope)
        stream.observer.record.read_ns, stream.observer.record.validated_ns = read_ns, time.monotonic_ns()
        watch = asyncio.create_task(self._watch(stream, receive))
        try:
            await self._serve(stream, send, headers)
        finally:
            watch.cancel()

    def _open(self, request_id: str, request: ValidRequest, arrived_s: float, scope: Scope) -> Stream:
        service = self._service
        headers = dict(scope["headers"])
        key = headers.get(TRACE_HEADER, b"")
        is_wanted = bool(service.sample_key) and hmac.compare_digest(key, service.sample_key)
        client = ClientTrace(headers.get(b"traceparent", b"").decode("latin-1"), is_wanted)
        observer = Observer(request_id, request, service.metrics, arrived_s, client, service.ring)
        is_timed = 0 < request.timeout_s < service.request_timeout_s
        timeout_s = request.timeout_s if is_timed else service.request_timeout_s
        ticket = Ticket(
            request_id=request_id,
            gateway=service.gateway,
            deadline_s=arrived_s + timeout_s,
            deadline_unix_ms=int((time.time() + timeout_s) * 1000),
            tenant=scope[CALLER].tenant,
            is_timed=is_timed,
        )
        return Stream(ticket, request, service.tokenizer, observer)

    async def _serve(self, stream: Stream, send: Send, headers: Headers) -> None:
        """Send the request on, answer it, and count how it ended, whatever happens."""
        outcome, code = "error", "internal"
        try:
            try:
                await self._service.hub.send(stream)
                stream.observer.record.queued_ns = time.monotonic_ns()
            except HeadraceError as error:
                self._service.metrics.rejections.inc()
                await reply.error(send, error, headers)
                raise
            async with while_read(send, UNREAD_TIMEOUT_S) as sending:
                await respond(stream, sending, headers)
            outcome, code = stream.choices[0].reason, ""
        except ClientGone:
            outcome, code = "abort", "client_gone"
        except HeadraceError as error:
            code = error.code
        finally:
            self._service.hub.abandon(stream, ClientGone())
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

    async def _watch(self, stream: Stream, receive: Receive) -> None:
        """Nothing but receive tells that the client left: sending to nobody succeeds."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._service.hub.abandon(stream, ClientGone())
