"""The cell's entry in the directory: claiming a term, then telling what the cell can hold."""

import asyncio
from dataclasses import replace

from libs.contracts import flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import CellRecord
from libs.runtime.bus import Bus
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger
from services.scheduler.config import Config
from services.scheduler.events import OpenCell

RETRY_S = 0.5

log = get_logger("scheduler")


class Register:
    """Holds the record as this term has published it."""

    def __init__(self, bus: Bus, record: CellRecord) -> None:
        self._bus, self._record = bus, record
        self._opened: asyncio.Future[OpenCell] = asyncio.get_running_loop().create_future()

    @classmethod
    async def claim(cls, bus: Bus, config: Config, port: int) -> tuple["Register", int]:
        """Declare what the cell needs at the broker and take the next term. Raises Unavailable."""
        await bus.declare_work_queue(flow.REQUESTS_STREAM, [flow.REQUESTS_SUBJECTS], max_messages=config.max_waiting)
        await bus.declare_work_queue(flow.SEQUENCES_STREAM, [flow.SEQUENCES_SUBJECTS], max_messages=config.max_waiting)
        await bus.declare_cells()
        record = CellRecord(
            model=config.model,
            cell=config.cell,
            term=0,
            scheduler=config.instance,
            address=f"{config.link_host}:{port}",
            block_tokens=0,
            model_digest="",
            max_prompt_tokens=0,
        )
        failpoint("scheduler.term.claim")
        term = await bus.claim_term(record)
        failpoint("scheduler.term.claimed")
        log.info("term_claimed", cell=config.cell, term=term, address=record.address)
        return cls(bus, replace(record, term=term)), term

    def open(self, command: OpenCell) -> None:
        if not self._opened.done():
            self._opened.set_result(command)

    async def publish(self) -> None:
        """Once the first worker told what the cell can hold, store it. Raises Fenced when another term has the cell."""
        opened = await self._opened
        failpoint("scheduler.cell.open")
        record = replace(
            self._record,
            block_tokens=opened.block_tokens,
            model_digest=opened.model_digest,
            max_prompt_tokens=opened.max_prompt_tokens,
        )
        while True:
            try:
                return await self._bus.put_cell(record)
            except Unavailable as error:
                log.warning("record_not_stored", reason=error.message)
                await asyncio.sleep(RETRY_S)
