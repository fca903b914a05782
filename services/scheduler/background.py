"""Tasks beside the main one: small ones that nobody waits for, and helpers that live as long as it does."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from libs.runtime.logs import get_logger

T = TypeVar("T")

log = get_logger("scheduler")


class Background:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def settle(self, timeout_s: float) -> None:
        """Wait for those under way, then cancel the rest."""
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background_failed", exc_info=error)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns, or None when the event is set first."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def run_beside(work: Coroutine[Any, Any, None], *helpers: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end and the helpers no longer than that; an error in any of them ends all and is raised."""
    main, *_ = tasks = [asyncio.ensure_future(part) for part in (work, *helpers)]
    pending = set(tasks)
    try:
        while main in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
