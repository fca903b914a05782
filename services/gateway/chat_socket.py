"""Chat over a WebSocket: the body and the chunks of a streamed POST as text messages, one answer at a time; cancel.

A client sends a body, or {"type": "cancel"} while its answer comes. It gets each chunk, then "[DONE]"; an error object
ends an answer, and so does {"type": "cancelled"}. The next body may follow on the same socket, or wait its turn there.
"""

import asyncio
import time

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from libs.contracts.errors import HeadraceError, InvalidRequest
from services.gateway import errors_http, sse
from services.gateway.generate import origin_of
from services.gateway.keys import Caller
from services.gateway.reply import Receive, Scope, Send
from services.gateway.respond import head_of, source_of
from services.gateway.server import UNREAD_TIMEOUT_S
from services.gateway.service import Service, accounted, check_open, new_request_id, open_chat, queue
from services.gateway.shapes import ChunkWriter
from services.gateway.stream import ClientGone, Stream
from services.gateway.validate import Kind

TEXT_ONLY, TOO_BIG, RESTARTING = 1003, 1009, 1012  # close codes: RFC 6455, and 1012 from IANA's registry
UNREAD_MAX = 4  # messages of a client that nobody has looked at yet

Inbox = asyncio.Queue[bytes | None]  # None: the client has left


class _Control(msgspec.Struct):
    type: str = ""


class ChatSocket:
    """The endpoint, as an ASGI app."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        inbox: Inbox = asyncio.Queue(UNREAD_MAX)
        reading = asyncio.create_task(self._read(socket, inbox))
        next_body: bytes | None = None
        try:
            while (payload := next_body or await inbox.get()) is not None:
                next_body = None if _is_cancel(payload) else await self._answer(socket, payload, inbox)
        except (ClientGone, WebSocketDisconnect):
            pass
        finally:
            reading.cancel()

    async def _read(self, socket: WebSocket, inbox: Inbox) -> None:
        """Messages as they come; whoever sends what is no text, or too much of it, is sent away."""
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                break
            text = message.get("text")
            if text is None:
                await socket.close(TEXT_ONLY)
                break
            payload = text.encode("utf-8", "surrogatepass")
            if len(payload) > self._service.max_body_bytes:
                await socket.close(TOO_BIG)
                break
            await inbox.put(payload)
        await inbox.put(None)

    async def _answer(self, socket: WebSocket, payload: bytes, inbox: Inbox) -> bytes | None:
        """One request; the next one's body, if it came meanwhile. Raises ClientGone when the client has left."""
        service, arrived_s = self._service, asyncio.get_running_loop().time()
        try:
            origin = origin_of(socket.scope, arrived_s)
            check_open(service, origin.caller)
            stream = open_chat(service, payload, new_request_id(Kind.CHAT), origin)
        except HeadraceError as error:
            await _send(socket, errors_http.body_of(error))
            if service.door.is_shut:
                await socket.close(RESTARTING)
            return None
        answering = asyncio.create_task(self._generate(socket, stream, origin.caller))
        try:
            next_body = await self._heed(socket, stream, inbox, answering)
        finally:
            service.hub.abandon(stream, ClientGone())
            (outcome,) = await asyncio.gather(answering, return_exceptions=True)
        if isinstance(outcome, HeadraceError):
            await _send(socket, errors_http.body_of(outcome))
        elif isinstance(outcome, ClientGone):
            await _send(socket, msgspec.json.encode({"type": "cancelled", "id": stream.request_id}))
        elif outcome is not None:
            raise outcome
        return next_body

    async def _heed(
        self, socket: WebSocket, stream: Stream, inbox: Inbox, answering: "asyncio.Task[None]"
    ) -> bytes | None:
        """Until the answer has ended, take what the client says meanwhile: cancel, or a body that waits its turn.

        Raises ClientGone when the client has left.
        """
        next_body: bytes | None = None
        while not answering.done():
            hearing = asyncio.create_task(inbox.get())
            await asyncio.wait((answering, hearing), return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                hearing.cancel()
                break
            payload = hearing.result()
            if payload is None:
                raise ClientGone
            if _is_cancel(payload):
                self._service.hub.abandon(stream, ClientGone())
            elif next_body is None:
                next_body = payload
            else:
                await _send(socket, errors_http.body_of(InvalidRequest("one request waits already, and no more can")))
        return next_body

    async def _generate(self, socket: WebSocket, stream: Stream, caller: Caller) -> None:
        """Raises what the request fails with; ClientGone when it was cancelled."""
        async with accounted(self._service, stream):
            await queue(self._service, stream, caller)
            writer: ChunkWriter | None = None
            async for delta in stream.deltas():
                opening, text_ns = b"", 0
                if writer is None:
                    text_ns = time.monotonic_ns()
                    writer = ChunkWriter(head_of(stream), source_of(stream), lambda: stream.usage)
                    opening = writer.first(len(stream.choices))
                await _send_events(socket, opening + writer.delta(delta))
                if text_ns:
                    stream.observer.wrote(text_ns)
            stream.observer.told()
            await _send_events(socket, (writer.usage() if writer else b"") + sse.DONE)


def _is_cancel(payload: bytes) -> bool:
    try:
        return msgspec.json.decode(payload, type=_Control).type == "cancel"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


async def _send_events(socket: WebSocket, events: bytes) -> None:
    for payload in sse.payloads(events):
        await _send(socket, payload)


async def _send(socket: WebSocket, payload: bytes) -> None:
    """Raises ClientGone for a client that takes nothing for long, or is gone."""
    try:
        async with asyncio.timeout(UNREAD_TIMEOUT_S):
            await socket.send_text(payload.decode())
    except (TimeoutError, WebSocketDisconnect, RuntimeError) as error:  # RuntimeError: it was closed meanwhile
        raise ClientGone from error
