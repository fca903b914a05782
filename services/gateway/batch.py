"""Several prompts of one request: a stream each, whose choices are numbered one prompt after the other."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from services.gateway.shapes import Delta, Usage
from services.gateway.stream import Stream

Item = tuple[Stream, Delta]


def usage_of(streams: Sequence[Stream]) -> Usage:
    """Of all prompts together."""
    usages = [stream.usage for stream in streams]
    return Usage(
        sum(usage.prompt_tokens for usage in usages),
        sum(usage.completion_tokens for usage in usages),
        sum(usage.cached_tokens for usage in usages),
    )


def numbered(streams: Sequence[Stream], stream: Stream, delta: Delta) -> Delta:
    """With the index of its choice among those of all prompts."""
    at = next(at for at, one in enumerate(streams) if one is stream)
    return replace(delta, index=at * len(stream.choices) + delta.index) if at else delta


async def merged(streams: Sequence[Stream]) -> AsyncIterator[Item]:
    """Deltas of all streams as they become certain. Raises what one of them fails with."""
    if len(streams) == 1:
        async for delta in streams[0].deltas():
            yield streams[0], delta
        return
    ready: asyncio.Queue[Item | BaseException | None] = asyncio.Queue(len(streams))
    readers = [asyncio.create_task(_read(stream, ready)) for stream in streams]
    try:
        left = len(readers)
        while left:
            item = await ready.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _read(stream: Stream, ready: "asyncio.Queue[Item | BaseException | None]") -> None:
    try:
        async for delta in stream.deltas():
            await ready.put((stream, delta))
        await ready.put(None)
    except Exception as error:  # the one that reads them all is to have it
        await ready.put(error)
