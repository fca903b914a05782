"""The workers that use a pool, by their kill switches beside it: who they are, and when each has ended."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from libs.runtime import kill_switch
from libs.runtime.logs import get_logger

LOOK_S: Final = 0.25  # between two looks for new lives; the end of a known one is told by the kernel

log = get_logger("pool")


class Lives:
    """Every life that has armed a switch in `folder` and goes on. `on_end` hears of each end once."""

    def __init__(self, folder: Path, on_end: Callable[[str], None]) -> None:
        self._folder, self._on_end = folder, on_end
        self._fds: dict[str, int] = {}
        self._ended: dict[str, asyncio.Event] = {}

    def writing(self) -> tuple[str, ...]:
        """Incarnations that may write to the pool at this moment."""
        self._look()
        return tuple(self._fds)

    async def end(self, incarnation: str) -> None:
        """Kill that process and return once it is gone; at once for one that is unknown, for it has ended before."""
        self._look()
        if incarnation in self._fds:
            kill_switch.pull(self._fds[incarnation])
            await self._ended[incarnation].wait()

    async def watch(self) -> None:
        """Notice lives as they come, for ever."""
        while True:
            self._look()
            await asyncio.sleep(LOOK_S)

    def close(self) -> None:
        for incarnation in tuple(self._fds):
            self._forget(incarnation)

    def _look(self) -> None:
        for incarnation, path in kill_switch.switches(self._folder).items():
            if incarnation in self._fds:
                continue
            fd = kill_switch.take(path)
            if fd is None:
                path.unlink(missing_ok=True)
                continue
            self._fds[incarnation], self._ended[incarnation] = fd, asyncio.Event()
            asyncio.get_running_loop().add_reader(fd, self._gone, incarnation, path)
            log.info("worker_came", incarnation=incarnation)

    def _gone(self, incarnation: str, path: Path) -> None:
        ended = self._ended[incarnation]
        self._forget(incarnation)
        path.unlink(missing_ok=True)
        ended.set()
        log.info("worker_gone", incarnation=incarnation)
        self._on_end(incarnation)

    def _forget(self, incarnation: str) -> None:
        fd = self._fds.pop(incarnation)
        del self._ended[incarnation]
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
