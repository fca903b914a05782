"""Tells the Redis index what this cell caches, in batches and at best effort: only hints hang on it."""

import asyncio
from typing import NoReturn

from libs.runtime.prefix_index import PrefixIndex
from services.scheduler.events import UpdateIndex


class IndexUpdates:
    """Changes gather while a batch is on its way; the last change of a block counts."""

    def __init__(self, index: PrefixIndex, cell: str, term: int) -> None:
        self._index, self._cell, self._term = index, cell, term
        self._changes: dict[bytes, bool] = {}
        self._changed = asyncio.Event()

    def update(self, command: UpdateIndex) -> None:
        self._changes |= dict.fromkeys(command.stored, True) | dict.fromkeys(command.evicted, False)
        self._changed.set()

    async def run(self) -> NoReturn:
        while True:
            await self._changed.wait()
            self._changed.clear()
            changes, self._changes = self._changes, {}
            stored = [block for block, is_stored in changes.items() if is_stored]
            evicted = [block for block, is_stored in changes.items() if not is_stored]
            await self._index.apply(self._cell, self._term, stored, evicted)
