"""Fetches the scores of prompts from their schedulers, once a first token tells that they are there."""

import asyncio
from collections.abc import Callable

from libs.contracts.errors import HeadraceError
from services.gateway.outbox import Outbox
from services.gateway.stream import Stream


class Fetching:
    """Owns one task for each stream that fetches. `tell` and `broken` are what becomes of a stream after an answer."""

    def __init__(
        self, outbox: Outbox, tell: Callable[[Stream], None], broken: Callable[[Stream, HeadraceError], None]
    ) -> None:
        self._outbox, self._tell, self._broken = outbox, tell, broken
        self.tasks: set[asyncio.Task[None]] = set()

    def look(self, stream: Stream) -> None:
        """Begin to fetch where there is something to be had and nobody does."""
        if stream.scoring is None or stream.scoring.is_asking or stream.scores_query() is None:
            return
        stream.scoring.is_asking = True
        task = asyncio.create_task(self._fetch(stream))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _fetch(self, stream: Stream) -> None:
        """Until all of it is here, or nobody wants it any more."""
        loop, scoring = asyncio.get_running_loop(), stream.scoring
        assert scoring is not None
        while (query := stream.scores_query()) is not None:
            scored = await self._outbox.ask_scores(stream.cell, query, stream.observer.traceparent)
            try:
                stream.on_scored(scored, loop.time())
            except HeadraceError as error:
                self._broken(stream, error)
                return
            if scoring.next == query.first:
                await asyncio.sleep(scoring.pause_s)
        self._tell(stream)
