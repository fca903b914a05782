"""From a stream of deltas to a response, in events or as one object; errors become what can still be told."""

import time
from collections.abc import Sequence
from functools import partial

from libs.contracts.errors import HeadraceError
from libs.text.detokenize import Detokenizer
from services.gateway import errors_http, reply, shapes, sse
from services.gateway.batch import merged, numbered, usage_of
from services.gateway.logprobs import Echo, prompt_entries
from services.gateway.notes import Note, TokenNames
from services.gateway.reply import Headers, Send
from services.gateway.shapes import ChunkWriter, Delta, Head, Source
from services.gateway.stream import Stream
from services.gateway.validate import Kind


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
        names=_names(stream) if request.params.logprobs >= 0 else None,
        tells_sums=request.params.beam_width > 0,
    )


def source_of(stream: Stream) -> Source:
    """What is told of its prompt; known from the first delta on."""
    request, ids = stream.request, stream.prompt_ids
    notes = [None, *stream.scoring.notes] if stream.scoring is not None else []
    scores = None
    if request.logprobs.prompt >= 0:
        scores = prompt_entries(_names(stream), ids, _first(notes, request.logprobs.prompt))
    echo = Echo()
    if request.echo:
        asked = request.logprobs.echo
        echo = Echo(echoed_text(stream))
        if asked >= 0:
            echo = Echo(echo.text, ids, tuple(_first(notes, asked)))
    return Source(ids, echo, scores)


def _first(notes: list[Note | None], tops: int) -> list[Note | None]:
    return [note and note.first(tops) for note in notes]


def _names(stream: Stream) -> TokenNames:
    return TokenNames(stream.tokenizer, by_id=stream.request.names_by_id)


def echoed_text(stream: Stream) -> str:
    """What stands before the text of each of its choices; known from the first delta on."""
    request, prompt = stream.request, stream.request.prompt
    if not request.echo:
        return ""
    if request.kind is Kind.CHAT:
        return request.begins_with
    if prompt.kind == "text" and not prompt.last_tokens:
        return prompt.text
    text = Detokenizer(stream.tokenizer, skip_special_tokens=request.reading.skips_special)
    return text.push(stream.prompt_ids) + text.finish()


async def respond(streams: Sequence[Stream], send: Send, headers: Headers) -> None:
    """Answer the client. Raises what the request failed with, after the client was told; ClientGone untold."""
    await (_events if streams[0].request.stream else _object)(streams, send, headers)


async def gathered(stream: Stream) -> list[Delta]:
    """All of each choice, in the order of their indices. Raises what the request failed with."""
    pieces: dict[int, list[Delta]] = {}
    async for delta in stream.deltas():
        pieces.setdefault(delta.index, []).append(delta)
    return [joined(deltas) for _, deltas in sorted(pieces.items())]


async def _object(streams: Sequence[Stream], send: Send, headers: Headers) -> None:
    parts = []
    try:
        for stream in streams:
            choices = [numbered(streams, stream, delta) for delta in await gathered(stream)]
            parts.append((source_of(stream), choices))
    except HeadraceError as error:
        await reply.error(send, error, headers)
        raise
    for stream in streams:
        stream.observer.told()
    body = shapes.whole(head_of(streams[0]), parts, usage_of(streams))
    await reply.whole(send, body, headers=(*headers, streams[0].observer.server_timing))


def joined(deltas: list[Delta]) -> Delta:
    """One delta that holds all of a choice."""
    return Delta(
        deltas[-1].index,
        "".join(delta.text for delta in deltas),
        [token_id for delta in deltas for token_id in delta.token_ids],
        deltas[-1].finish_reason,
        [note for delta in deltas for note in delta.notes],
    )


async def _events(streams: Sequence[Stream], send: Send, headers: Headers) -> None:
    """The head goes out with the first text, so that what fails before it still gets a status of its own."""
    writers: dict[str, ChunkWriter] = {}
    first, usage = streams[0], partial(usage_of, streams)
    try:
        async for stream, delta in merged(streams):
            opening, text_ns, is_begun = b"", 0, bool(writers)
            writer = writers.get(stream.request_id)
            if writer is None:
                text_ns = time.monotonic_ns()
                writer = writers[stream.request_id] = ChunkWriter(head_of(first), source_of(stream), usage)
                opening = writer.first(len(stream.choices))
            if not is_begun:
                await reply.begin(send, 200, (*reply.EVENTS, *headers, stream.observer.server_timing))
            await reply.part(send, opening + writer.delta(numbered(streams, stream, delta)))
            if text_ns:
                stream.observer.wrote(text_ns)
    except HeadraceError as error:
        if not writers:
            await reply.error(send, error, headers)
        else:
            await reply.part(send, errors_http.event_of(error), more=False)
        raise
    for stream in streams:
        stream.observer.told()
    closing = writers[first.request_id].usage() if writers else b""
    await reply.part(send, closing + sse.DONE, more=False)
