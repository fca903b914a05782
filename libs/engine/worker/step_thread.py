"""Steps a worker in a thread of its own: one version a boundary, then whatever may advance; parked when nothing may.

The thread alone owns Residents, engine and pool. Orders come in through an inbox; everything it has to say goes out
through one callback, in the order in which it happened.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from libs.engine.rows import Sampled, StepRow
from libs.engine.worker.boundary import Boundary, Order, Word
from libs.engine.worker.laps import AWAIT_ORDER, IDLE, Laps
from libs.engine.worker.ports import BlockPool, HostTier, StepEngine
from libs.engine.worker.residents import Residents
from libs.runtime.failpoints import failpoint


@dataclass(frozen=True, slots=True)
class Crashed:
    """The step thread's last word: it met an error that is a bug, or a lost device."""

    error: BaseException


Post = Word | Crashed


class StepThread:
    """`post` is called from the thread, once a step and once for each version or Hello; it must not block."""

    def __init__(
        self,
        residents: Residents,
        engine: StepEngine,
        pool: BlockPool,
        post: Callable[[Post], object],
        laps: Laps | None = None,
        tier: HostTier | None = None,
    ) -> None:
        self._laps = laps or Laps(time.monotonic_ns)
        watched = None if tier is None else _WatchedTier(tier)
        self._boundary = Boundary(residents, _Watched(engine), pool, post, self._laps, watched)
        self._residents, self._post = residents, post
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
        self._wake = threading.Condition()
        self._inbox: list[Order] = []
        self._calls: list[Callable[[], object]] = []
        self._is_stopping = False

    def start(self) -> None:
        self._thread.start()

    def send(self, message: Order) -> None:
        """Hand over an order, or ask for the Hello; seen at the next step boundary."""
        with self._wake:
            self._inbox.append(message)
            self._wake.notify()

    def call(self, do: Callable[[], object]) -> None:
        """Have the thread do something at the next step boundary."""
        with self._wake:
            self._calls.append(do)
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
                may_park = not self._advance()
        except Exception as error:
            self._post(Crashed(error))

    def _receive(self, may_park: bool) -> bool:
        """Take in the inbox, after waiting for something in it if there is nothing else to do; False at the end."""
        with self._wake:
            while may_park and not (self._inbox or self._calls or self._is_stopping):
                self._wake.wait()
                self._laps.lap(IDLE if self._residents.is_vacant else AWAIT_ORDER)
            if self._is_stopping:
                return False
            inbox, self._inbox = self._inbox, []
            calls, self._calls = self._calls, []
        for do in calls:
            do()
        self._boundary.receive(inbox)
        return True

    def _advance(self) -> bool:
        """Take a version and step; False when there was nothing to do."""
        has_taken = self._boundary.take()
        if has_taken:
            failpoint("worker.version.taken")
        step = self._boundary.rows()
        if step is not None:
            failpoint("worker.step.before")
            self._boundary.step(step)
        return has_taken or step is not None


class _Watched:
    """The engine, with a place for a fault between a step's KV and what becomes of its tokens."""

    def __init__(self, engine: StepEngine) -> None:
        self._engine = engine

    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        samples = self._engine.step(rows)
        failpoint("worker.step.published")
        return samples


class _WatchedTier:
    """The host tier, with a place for a fault behind each block that has travelled."""

    def __init__(self, tier: HostTier) -> None:
        self._tier = tier

    @property
    def blocks(self) -> int:
        return self._tier.blocks

    def swap_out(self, block: int, host_block: int) -> None:
        self._tier.swap_out(block, host_block)
        failpoint("worker.swap.out")

    def swap_in(self, block: int, host_block: int) -> None:
        self._tier.swap_in(block, host_block)
        failpoint("worker.swap.in")
