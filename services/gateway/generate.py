"""The two HTTP endpoints that generate: a body becomes a request, the request a stream, the stream a response."""

import asyncio
from collections.abc import Sequence
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
from services.gateway.service import Origin, Service, all_accounted, check_open, new_request_id, open_streams, queue
from services.gateway.stream import ClientGone, Stream
from services.gateway.unread import while_read
from services.gateway.validate import Kind, is_name

TRACE_HEADER = b"x-headrace-trace"
CLOSE = (b"connection", b"close")


def origin_of(scope: Scope, arrived_s: float) -> Origin:
    """Of a request or a socket that the guard has let in."""
    headers = dict(scope["headers"])
    traceparent, name = (headers.get(header, b"").decode("latin-1") for header in (b"traceparent", b"x-request-id"))
    return Origin(scope[CALLER], arrived_s, traceparent, headers.get(TRACE_HEADER, b""), name if is_name(name) else "")


class Generate:
    """One endpoint, as an ASGI app."""

    def __init__(self, kind: Kind, service: Service) -> None:
        self._kind = kind
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, arrived_s = self._service, asyncio.get_running_loop().time()
        request_id, origin = new_request_id(self._kind), origin_of(scope, arrived_s)
        name = origin.request_id or request_id
        try:
            check_open(service, scope[CALLER])
            payload = await read_body(scope, receive, max_bytes=service.max_body_bytes)
            streams = open_streams(service, self._kind, payload, request_id, origin)
            name = streams[0].request.client_id or name
        except ConnectionResetError:
            return
        except HeadraceError as error:
            # A connection that stays open would bring its next request to a server that is going away.
            closing = (CLOSE,) if service.door.is_shut and scope["http_version"].startswith("1") else ()
            await reply.error(send, error, (_named(name), *closing))
            return
        watch = asyncio.create_task(self._watch(streams, receive))
        try:
            with suppress(ClientGone, HeadraceError):  # counted, and the client was told
                await self._serve(streams, origin.caller, send, (_named(name),))
        finally:
            watch.cancel()

    async def _serve(self, streams: Sequence[Stream], caller: Caller, send: Send, headers: Headers) -> None:
        """Send the request on and answer it."""
        async with all_accounted(self._service, streams):
            try:
                quotas = [await queue(self._service, stream, caller) for stream in streams]
            except HeadraceError as error:
                await reply.error(send, error, headers)
                raise
            async with while_read(send, UNREAD_TIMEOUT_S) as sending:
                left = quota_headers(quotas[-1]) if quotas[-1] else ()
                await respond(streams, sending, (*headers, *left))

    async def _watch(self, streams: Sequence[Stream], receive: Receive) -> None:
        """Nothing but receive tells that the client left: sending to nobody succeeds."""
        while (await receive())["type"] != "http.disconnect":
            pass
        for stream in streams:
            self._service.hub.abandon(stream, ClientGone())


def _named(request_id: str) -> tuple[bytes, bytes]:
    return b"x-request-id", request_id.encode()
