"""Cancellations that a library would lose."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def heed(answer: Awaitable[T]) -> T:
    """What `answer` gives, unless this task is cancelled meanwhile: then CancelledError, also beside an answer.

    In Python 3.11 `asyncio.wait_for` forgets a cancellation in whose round of the loop the answer comes, and one who
    asks in a loop never ends. We use `asyncio.timeout` instead; the libraries do not.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        return await answer
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError
