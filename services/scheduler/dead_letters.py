"""What becomes of requests that workers die of: an entry in a stream for an operator, without a word of the prompt."""

import asyncio
import json
import time

from libs.contracts import flow
from libs.contracts.errors import HeadraceError
from libs.runtime.bus import Bus
from libs.runtime.logs import get_logger
from services.scheduler.background import Background
from services.scheduler.config import Config
from services.scheduler.events import DeadLetter

KEPT_LETTERS = 1000
TRIES = 10
RETRY_S = 1.0

log = get_logger("scheduler")


class DeadLetters:
    def __init__(self, bus: Bus, config: Config, background: Background) -> None:
        self._bus, self._background = bus, background
        self._model, self._cell = config.model, config.cell

    async def declare(self) -> None:
        """Raises Unavailable."""
        subjects = [flow.DEAD_LETTERS_SUBJECTS]
        await self._bus.declare_log(flow.DEAD_LETTERS_STREAM, subjects, max_messages=KEPT_LETTERS)

    def bury(self, letter: DeadLetter) -> None:
        entry: dict[str, str | int] = {
            "request_id": letter.request_id,
            "tenant": letter.tenant,
            "deaths": letter.deaths,
            "prompt_tokens": letter.prompt_tokens,
            "generated_tokens": letter.generated_tokens,
        }
        log.error("dead_letter", exc_info=False, **entry)
        where_and_when = {"model": self._model, "cell": self._cell, "unix_ms": time.time_ns() // 1_000_000}
        self._background.spawn(self._store(letter.request_id, json.dumps(entry | where_and_when).encode()))

    async def _store(self, request_id: str, payload: bytes) -> None:
        """The log has it in any case; a broker that is away is waited for, but not for ever."""
        subject = flow.dead_letters_subject(self._model, self._cell)
        for _ in range(TRIES):
            try:
                await self._bus.enqueue(subject, payload, message_id=f"{request_id}:dead")
                return
            except HeadraceError as error:
                log.warning("dead_letter_not_stored", request_id=request_id, reason=error.message)
            await asyncio.sleep(RETRY_S)
