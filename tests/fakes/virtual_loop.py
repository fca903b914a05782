"""An event loop in which time passes only when everybody waits, and then at once."""

import asyncio
import selectors
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0 and owes nothing to the machine's: a wait of a second takes none, and exactly a second."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Leaping(self))

    def time(self) -> float:
        return self._now_s

    def leap(self, seconds: float) -> None:
        self._now_s += seconds


class _Leaping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        self._loop.leap(max(0.0, timeout or 0.0))
        return super().select(0)
