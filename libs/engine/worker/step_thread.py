"""Steps a worker in a thread of its own: one version a boundary, then whatever may advance; parked when nothing may.

The thread alone owns Residents, engine and pool. Orders come in through an inbox; everything it has to say goes out
through one callback, in the order in which it happened.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from libs.contracts.messages import Delta, Hello, Resync, Snapshot
from libs.engine.worker.ports import BlockPool, StepEngine
from libs.engine.worker.residents import Residents, Step, StepReport, Taken


@dataclass(frozen=True, slots=True)
class HelloWanted:
    """A link asks what the worker holds; `session` tells its answer from one meant for a link lost since."""

    session: int


@dataclass(frozen=True, slots=True)
class HelloReady:
    session: int
    hello: Hello


@dataclass(frozen=True, slots=True)
class Crashed:
    """The step thread's last word: it met an error that is a bug, or a lost device."""

    error: BaseException


Post = Taken | Resync | StepReport | HelloReady | Crashed


class StepThread:
    """`post` is called from the thread, once a step and once for each version or Hello; it must not block."""

    def __init__(
        self, residents: Residents, engine: StepEngine, pool: BlockPool, post: Callable[[Post], object]
    ) -> None:
        self._residents, self._engine, self._pool, self._post = residents, engine, pool, post
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
        self._wake = threading.Condition()
        self._inbox: list[Snapshot | Delta | HelloWanted] = []
        self._is_stopping = False

    def start(self) -> None:
        self._thread.start()

    def send(self, message: Snapshot | Delta | HelloWanted) -> None:
        """Hand over an order, or ask for the Hello; seen at the next step boundary."""
        with self._wake:
            self._inbox.append(message)
            self._wake.notify()

    def stop(self) -> None:
        """End at the next step boundary."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; False when a step outlasts the time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        may_park = False
        try:
            while self._receive(may_park):
                may_park = not self._boundary()
        except Exception as error:
            self._post(Crashed(error))

    def _receive(self, may_park: bool) -> bool:
        """Take in the inbox, after waiting for something in it if there is nothing else to do; False at the end."""
        with self._wake:
            while may_park and not self._inbox and not self._is_stopping:
                self._wake.wait()
            if self._is_stopping:
                return False
            inbox, self._inbox = self._inbox, []
        for message in inbox:
            if isinstance(message, HelloWanted):
                self._post(HelloReady(message.session, self._residents.hello()))
            else:
                self._residents.offer(message)
        return True

    def _boundary(self) -> bool:
        """Take a version and step; False when there was nothing to do."""
        taken = self._residents.take_version(time.monotonic_ns())
        if isinstance(taken, Taken) and taken.resets:
            self._pool.reset(taken.resets)  # before Began is sent: from then on their fill counts are believed
        if taken is not None:
            self._post(taken)
        if isinstance(taken, Taken):
            for copy in taken.copies:
                self._pool.copy(copy.source, copy.target, copy.tokens)
        step = self._residents.rows_for_step(time.monotonic_ns())
        if step is not None:
            self._step(step)
        return taken is not None or step is not None

    def _step(self, step: Step) -> None:
        started_ns = time.monotonic_ns()
        samples = self._engine.step(step.rows) if step.rows else []
        ended_ns = time.monotonic_ns()
        self._post(self._residents.absorb(step, samples, started_ns=started_ns, ended_ns=ended_ns))
