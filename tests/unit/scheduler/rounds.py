"""Waits for the event loop to have done something."""

import asyncio
from collections.abc import Callable


async def rounds(condition: Callable[[], bool]) -> None:
    """Let tasks run until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")
