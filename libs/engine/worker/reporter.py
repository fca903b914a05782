"""Tells what the step thread did, in its order: frames to gateways, then results to the scheduler, and the spans."""

import asyncio
import time
from typing import NoReturn

from libs.contracts import flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import Resync
from libs.engine.worker.boundary import HelloReady
from libs.engine.worker.frames import frames_of
from libs.engine.worker.link_client import SchedulerLink
from libs.engine.worker.residences import Residences
from libs.engine.worker.step_thread import Crashed, Post
from libs.engine.worker.step_values import StepReport, Taken
from libs.runtime.bus import Bus
from libs.runtime.failpoints import failpoint, failpoint_bytes
from libs.runtime.logs import get_logger

log = get_logger("worker")


class Reporter:
    """`posts` is where the step thread's words arrive. A lost frame is repaired by its gateway, not sent again."""

    def __init__(
        self, posts: asyncio.Queue[Post], bus: Bus, link: SchedulerLink, residences: Residences, *, cell: str
    ) -> None:
        self._posts, self._bus, self._link, self._residences, self._cell = posts, bus, link, residences, cell
        self.vacant = asyncio.Event()  # no order taken so far leaves a resident
        self.vacant.set()

    async def run(self) -> NoReturn:
        """Raises whatever ended the step thread."""
        while True:
            post = await self._posts.get()
            try:
                await self._report(post)
            finally:
                self._posts.task_done()

    async def _report(self, post: Post) -> None:
        match post:
            case StepReport():
                await self._report_step(post)
            case Taken():
                failpoint("worker.began")
                self._link.send(post.began)
                self._residences.begin(post.added, post.at_ns)
                self._residences.end(post.removed, post.at_ns)
                (self.vacant.set if post.is_last else self.vacant.clear)()
            case Resync():
                log.warning("resync", term=post.term, version=post.version)
                self._link.send(post)
            case HelloReady():
                self._link.greet(post)
            case Crashed():
                raise post.error

    async def _report_step(self, report: StepReport) -> None:
        failpoint("worker.step.absorbed")
        frames = frames_of(
            report,
            self._residences.note(report),
            cell=self._cell,
            sent_ns=time.monotonic_ns(),
            max_payload_bytes=self._bus.max_payload_bytes,
        )
        for gateway, payload in frames:
            try:
                payload = failpoint_bytes("worker.frame.before", payload)
                await self._bus.publish(flow.tokens_subject(gateway), payload)
            except (Unavailable, ValueError) as error:
                log.warning("frame_lost", gateway=gateway, reason=str(error))
        failpoint("worker.frame.after")
        self._link.report(report.result)
