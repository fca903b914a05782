"""From a stream of deltas to a response, in events or as one object; errors become what can still be told."""

import time

from libs.contracts.errors import HeadraceError
from services.gateway import errors_http, reply, shapes, sse
from services.gateway.reply import Headers, Send
from services.gateway.shapes import ChunkWriter, Delta, Head
from services.gateway.stream import Stream


def head_of(stream: Stream) -> Head:
    request = stream.request
    return Head(
        kind=request.kind,
        request_id=stream.request_id,
        model=request.model,
        created_unix_s=int(time.time()),
        include_usage=request.include_usage,
        continuous_usage=request.continuous_usage,
        return_token_ids=request.return_token_ids,
    )


async def respond(stream: Stream, send: Send, headers: Headers) -> None:
    """Answer the client. Raises what the request failed with, after the client was told; ClientGone untold."""
    await (_events if stream.request.stream else _object)(stream, send, headers)


async def gathered(stream: Stream) -> list[Delta]:
    """All of each choice, in the order of their indices. Raises what the request failed with."""
    pieces: dict[int, list[Delta]] = {}
    async for delta in stream.deltas():
        pieces.setdefault(delta.index, []).append(delta)
    return [_joined(deltas) for _, deltas in sorted(pieces.items())]


async def _object(stream: Stream, send: Send, headers: Headers) -> None:
    try:
        choices = await gathered(stream)
    except HeadraceError as error:
        await reply.error(send, error, headers)
        raise
    stream.observer.told()
    body = shapes.whole(head_of(stream), choices, stream.usage, stream.prompt_ids)
    await reply.whole(send, body, headers=(*headers, stream.observer.server_timing))


def _joined(deltas: list[Delta]) -> Delta:
    """One delta that holds all of a choice."""
    return Delta(
        deltas[-1].index,
        "".join(delta.text for delta in deltas),
        [token_id for delta in deltas for token_id in delta.token_ids],
        deltas[-1].finish_reason,
    )


async def _events(stream: Stream, send: Send, headers: Headers) -> None:
    """The head goes out with the first text, so that what fails before it still gets a status of its own."""
    writer: ChunkWriter | None = None
    try:
        async for delta in stream.deltas():
            usage = stream.usage
            opening, text_ns = b"", 0
            if writer is None:
                text_ns = time.monotonic_ns()
                writer = ChunkWriter(head_of(stream), stream.prompt_ids)
                opening = writer.first(len(stream.choices), usage)
                await reply.begin(send, 200, (*reply.EVENTS, *headers, stream.observer.server_timing))
            await reply.part(send, opening + writer.delta(delta, usage))
            if text_ns:
                stream.observer.wrote(text_ns)
    except HeadraceError as error:
        if writer is None:
            await reply.error(send, error, headers)
        else:
            await reply.part(send, errors_http.event_of(error), more=False)
        raise
    stream.observer.told()
    closing = writer.usage(stream.usage) if writer else b""
    await reply.part(send, closing + sse.DONE, more=False)
