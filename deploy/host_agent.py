"""The host agent: what schedulers may know and want of the workers of one host.

It kills one life of a worker on a scheduler's word and says so once that process is gone, lists those that may write to
the pool, and reports an end that nobody asked for.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from libs.contracts import codec, flow
from libs.contracts.errors import MalformedMessage, Unavailable
from libs.contracts.messages import Done, Exited, Gone, Incarnations, Kill, ListIncarnations
from libs.runtime.bus import Bus
from libs.runtime.failpoints import failpoint
from libs.runtime.logs import get_logger

ANSWER_S = 1.0
REPORT_S = 10.0  # a scheduler that comes later asks who is there
PAUSE_S = 0.1

log = get_logger("host_agent")


class StaleTerm(MalformedMessage):
    """A scheduler that was replaced asks; it is not answered."""


class Workers(Protocol):
    """The workers of a host, as their starter or the holder of their pool knows them."""

    def writing(self) -> Sequence[str]:
        """Incarnations of those that have got as far as using the pool."""

    async def end(self, incarnation: str) -> None:
        """Kill that life and return once its process is gone; at once when it is none of these: it ended before."""


class HostAgent:
    """Answers for the workers of one host."""

    def __init__(self, bus: Bus, host: str, workers: Workers) -> None:
        self._bus, self._host, self._workers = bus, host, workers
        self._terms: dict[str, int] = {}  # cell → the highest term heard of
        self._reports: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer on this host's subject."""

        async def answer(payload: bytes, traceparent: str) -> bytes:
            return await self.answer(payload)

        await self._bus.serve(flow.host_subject(self._host), answer)

    async def answer(self, payload: bytes) -> bytes:
        """The answer to Kill or ListIncarnations; idempotent by incarnation. Raises MalformedMessage, StaleTerm."""
        message: Kill | ListIncarnations = codec.decode_in("HostMessage", payload)
        highest = self._terms[message.cell] = max(message.term, self._terms.get(message.cell, 0))
        if message.term < highest:
            raise StaleTerm(f"term {message.term} of cell {message.cell} is over, {highest} leads it")
        if isinstance(message, ListIncarnations):
            return codec.encode_in("HostReply", Incarnations(tuple(self._workers.writing())))
        failpoint("host.kill.received")
        await self._workers.end(message.incarnation)
        failpoint("host.kill.gone")
        return codec.encode_in("HostReply", Gone(message.incarnation))

    def ended(self, incarnation: str, cell: str) -> None:
        """Tell the cell's scheduler, so that it need not find out."""
        report = asyncio.create_task(self._report(incarnation, cell))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report(self, incarnation: str, cell: str) -> None:
        loop, payload = (
            asyncio.get_running_loop(),
            codec.encode_in("ControlMessage", Exited(incarnation, self._terms.get(cell, 0))),
        )
        give_up_s = loop.time() + REPORT_S
        while loop.time() < give_up_s:
            try:
                codec.decode(Done, await self._bus.request(flow.control_subject(cell), payload, timeout_s=ANSWER_S))
                return
            except (Unavailable, MalformedMessage) as error:
                log.debug("exit_not_told", incarnation=incarnation, reason=error.message)
            await asyncio.sleep(PAUSE_S)
