"""Processes in virtual time: each has an event loop of its own, so that one can be frozen, or die, while others run on.

Nothing here reads a clock or a socket: a loop runs until it has nothing left to do now, and says when it has next.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

START_S = 1_000.0
IDLE = float("inf")
LATE_S = 1e-6  # a timer never goes off early, so a time computed from another clock is past when it does


class Clock:
    """The one time of a world."""

    def __init__(self) -> None:
        self.now_s = START_S


class _NoIo(selectors.BaseSelector):
    """Never waits: a loop that would wait is stopped, and `due_s` is when it wanted to go on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.due_s = IDLE
        self.stop: Callable[[], None] = lambda: None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self.due_s = IDLE if timeout is None else self._clock.now_s + timeout + LATE_S
            self.stop()
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.idle = _NoIo(clock)
        super().__init__(self.idle)
        self.idle.stop = self.stop

    def time(self) -> float:
        return self._clock.now_s


class Process:
    """Something that may crash, freeze and thaw. `exited` holds its last word once its main has ended."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self.clock = name, clock
        self.is_alive, self.is_frozen, self.is_dirty = True, False, True
        self.exited: BaseException | None = None
        self.complaints: list[str] = []  # what no task's owner has seen
        self.loop = _Loop(clock)
        self.loop.set_exception_handler(self._complain)
        self._main: asyncio.Task[None] | None = None

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        self._main = self.loop.create_task(main)

    @property
    def is_runnable(self) -> bool:
        return self.is_alive and not self.is_frozen

    @property
    def due_s(self) -> float:
        """When it has something to do by itself."""
        if not self.is_runnable:
            return IDLE
        return self.clock.now_s if self.is_dirty else self.loop.idle.due_s

    def call(self, callback: Callable[..., object], *args: Any) -> None:
        """Something comes in from outside. A frozen process finds it when it thaws."""
        if self.is_alive:
            self.loop.call_soon(callback, *args)
            self.is_dirty = True

    def run(self) -> None:
        """Until nothing is left to do now."""
        self.is_dirty = False
        self.loop.run_forever()
        if self._main is not None and self._main.done() and self.is_alive:
            self.exited = None if self._main.cancelled() else self._main.exception()
            self.kill()

    def kill(self) -> None:
        """It is gone at once: nobody outside hears what its tasks still say."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.loop.set_exception_handler(lambda loop, context: None)
        while tasks := asyncio.all_tasks(self.loop):
            for task in sorted(tasks, key=asyncio.Task.get_name):
                task.cancel()
            self.loop.run_forever()
        self.loop.close()

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.complaints.append(f"{self.name}: {context.get('exception') or context['message']!r}")
