"""The two HTTP endpoints that generate: a body becomes a request, the request a stream, the stream a response."""

import asyncio
from contextlib import suppress

from libs.contracts.errors import HeadraceError
from services.gateway import reply
from services.gateway.auth import CALLER
from services.gateway.body import read_body
from services.gateway.keys import Caller
from services.gateway.quota_headers import quota_headers
from services.gateway.reply import Headers, Receive, Scope, Send
from services.gateway.respond import respond
from services.gateway.server import UNREAD_TIMEOUT_S
from services.gateway.service import Origin, Service, accounted, check_open, new_request_id, open_stream, queue
from services.gateway.stream import ClientGone, Stream
from services.gateway.unread import while_read
from services.gateway.validate import Kind

TRACE_HEADER = b"x-headrace-trace"
CLOSE = (b"connection", b"close")


def origin_of(scope: Scope, arrived_s: float) -> Origin:
    """Of a request or a socket that the guard has let in."""
    headers = dict(scope["headers"])
    traceparent = headers.get(b"traceparent", b"").decode("latin-1")
    return Origin(scope[CALLER], arrived_s, traceparent, headers.get(TRACE_HEADER, b""))


class Generate:
    """One endpoint, as an ASGI app."""

    def __init__(self, kind: Kind, service: Service) -> None:
        self._kind = kind
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, arrived_s = self._service, asyncio.get_running_loop().time()
        request_id = new_request_id(self._kind)
        headers = ((b"x-request-id", request_id.encode()),)
        try:
            check_open(service, scope[CALLER])
            payload = await read_body(scope, receive, max_bytes=service.max_body_bytes)
            origin = origin_of(scope, arrived_s)
            stream = open_stream(service, self._kind, payload, request_id, origin)
        except ConnectionResetError:
            return
        except HeadraceError as error:
            # A connection that stays open would bring its next request to a server that is going away.
            closing = (CLOSE,) if service.door.is_shut and scope["http_version"].startswith("1") else ()
            await reply.error(send, error, (*headers, *closing))
            return
        watch = asyncio.create_task(self._watch(stream, receive))
        try:
            with suppress(ClientGone, HeadraceError):  # counted, and the client was told
                await self._serve(stream, origin.caller, send, headers)
        finally:
            watch.cancel()

    async def _serve(self, stream: Stream, caller: Caller, send: Send, headers: Headers) -> None:
        """Send the request on and answer it."""
        async with accounted(self._service, stream):
            try:
                quota = await queue(self._service, stream, caller)
            except HeadraceError as error:
                await reply.error(send, error, headers)
                raise
            async with while_read(send, UNREAD_TIMEOUT_S) as sending:
                await respond(stream, sending, (*headers, *(quota_headers(quota) if quota else ())))

    async def _watch(self, stream: Stream, receive: Receive) -> None:
        """Nothing but receive tells that the client left: sending to nobody succeeds."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._service.hub.abandon(stream, ClientGone())
