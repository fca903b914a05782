"""The cell's entry in the directory: claiming a term, then telling what the cell can hold."""

import asyncio
from dataclasses import replace

from libs.contracts import flow
from libs.contracts.errors import Fenced, Unavailable
from libs.contracts.messages import CellRecord
from libs.runtime.bus import Bus
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger
from services.scheduler.config import Config
from services.scheduler.events import OpenCell
from services.scheduler.standby import Standby

RETRY_S = 0.5

log = get_logger("scheduler")


class Register:
    """Holds the record as this term has published it."""

    def __init__(self, bus: Bus, record: CellRecord) -> None:
        self.term = record.term
        self.is_first = not record.block_tokens  # as far as the broker's store tells, no term before had a worker
        self._bus, self._record = bus, record
        self._opened: asyncio.Future[OpenCell] = asyncio.get_running_loop().create_future()

    @classmethod
    async def claim(cls, bus: Bus, config: Config, port: int, *, after: int | None = None) -> "Register":
        """Declare what the cell needs at the broker and take the next term. Raises Unavailable.

        Raises Fenced when `after` is given and another took the term that follows it.
        """
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
        claimed = await bus.claim_term(record, after=after)
        failpoint("scheduler.term.claimed")
        log.info("term_claimed", cell=config.cell, term=claimed.term, address=record.address)
        return cls(bus, claimed)

    @classmethod
    async def lead(cls, bus: Bus, config: Config, port: int, standby: Standby) -> "Register":
        """Stand by while another leads the cell, then take the next term."""
        while True:
            after = await standby.wait_for_vacancy()
            try:
                return await cls.claim(bus, config, port, after=after)
            except Fenced as error:
                log.info("not_followed", reason=error.message)

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
