"""Gives a client up that takes none of its answer for long. HTTP/2 lets one stream stand still beside others; where the
whole connection does, the system notices as soon.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.gateway.reply import Message, Send
from services.gateway.stream import ClientGone


@asynccontextmanager
async def while_read(send: Send, limit_s: float) -> AsyncIterator[Send]:
    """Whatever the block sends through this must be taken within `limit_s`: else the block ends in ClientGone.

    One timer a response looks after all of it: a part costs a look at the clock.
    """
    loop = asyncio.get_running_loop()
    begun_s: float | None = None  # when the part under way was handed over
    timer: asyncio.TimerHandle

    async def sending(message: Message) -> None:
        nonlocal begun_s
        begun_s = loop.time()
        await send(message)
        begun_s = None

    def look() -> None:
        nonlocal timer
        due_s = limit_s + (loop.time() if begun_s is None else begun_s)
        if due_s <= loop.time():
            patience.reschedule(due_s)
        else:
            timer = loop.call_at(due_s, look)

    timer = loop.call_later(limit_s, look)
    try:
        async with asyncio.timeout(None) as patience:
            yield sending
    except TimeoutError:
        if not patience.expired():
            raise
        raise ClientGone from None
    finally:
        timer.cancel()
