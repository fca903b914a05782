"""WorkerLink: one session per worker. Its messages become events; commands for it go out in order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from libs.contracts.messages import Delta, Hello, SchedulerMessage, Snapshot, StepResult, WorkerReport
from libs.runtime.failpoints import failpoint
from libs.runtime.link import LinkSession
from libs.runtime.logs import get_logger
from services.scheduler.events import Event, LinkClosed, Refuse, Send

log = get_logger("scheduler")

_CLOSED = None


class Links:
    """The open sessions by incarnation; a worker that dials again replaces its old one."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self.on_step: Callable[[StepResult], None] = lambda result: None  # told of each reported step, beside the core
        self._outgoing: dict[str, asyncio.Queue[Send | Refuse | None]] = {}

    async def serve(self, session: LinkSession) -> None:
        """The life of one link; its end is an event, unless a newer link has taken its place."""
        messages = session.receive()
        hello = await anext(messages, None)
        if not isinstance(hello, Hello):
            await session.refuse("a link begins with Hello")
            return
        failpoint("scheduler.hello")
        log.info("link_opened", worker=hello.worker, role=hello.role, incarnation=hello.incarnation, peer=session.peer)
        outgoing: asyncio.Queue[Send | Refuse | None] = asyncio.Queue()
        self._outgoing[hello.incarnation] = outgoing
        receiving = asyncio.create_task(self._receive(hello, messages, outgoing))
        try:
            await self._send(session, outgoing)
        finally:
            receiving.cancel()
            if self._outgoing.get(hello.incarnation) is outgoing:
                del self._outgoing[hello.incarnation]
                self._post(LinkClosed(hello.incarnation))
            log.info("link_closed", worker=hello.worker, incarnation=hello.incarnation)
            await asyncio.gather(receiving, return_exceptions=True)

    def carry(self, command: Send | Refuse) -> None:
        """Send or refuse. Without a link there is nobody to tell: the worker's next Hello brings it up to date."""
        outgoing = self._outgoing.get(command.incarnation)
        if outgoing is not None:
            outgoing.put_nowait(command)

    async def _receive(
        self, hello: Hello, messages: AsyncIterator[WorkerReport], outgoing: asyncio.Queue[Send | Refuse | None]
    ) -> None:
        self._post(hello)
        try:
            async for message in messages:
                if self._outgoing.get(hello.incarnation) is outgoing:
                    self._post(message)
                    if isinstance(message, StepResult):
                        self.on_step(message)
        finally:
            outgoing.put_nowait(_CLOSED)

    async def _send(self, session: LinkSession, outgoing: asyncio.Queue[Send | Refuse | None]) -> None:
        while True:
            command = await outgoing.get()
            match command:
                case Send():
                    _pass_failpoints(command.message)
                    await session.send(replace(command.message, incarnation=command.incarnation))
                case Refuse():
                    log.warning("worker_refused", incarnation=command.incarnation, reason=command.reason)
                    await session.refuse(command.reason, retry=command.retry)
                case _:
                    return


def _pass_failpoints(message: SchedulerMessage) -> None:
    match message:
        case Snapshot():
            failpoint("scheduler.snapshot.send")
        case Delta():
            failpoint("scheduler.order.send")
            if any(resident.cursor >= resident.prompt_tokens for resident in message.added):
                failpoint("scheduler.hand_over")
