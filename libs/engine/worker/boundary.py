"""What happens at a step boundary, in its order; whoever calls this owns Residents, engine and pool. No thread here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from libs.contracts.messages import Delta, Hello, Resync, Snapshot
from libs.engine.worker.laps import ABSORB, COPIES, ORDERS, REPORTS, ROWS, Laps
from libs.engine.worker.ports import BlockPool, HostTier, StepEngine
from libs.engine.worker.residents import Residents
from libs.engine.worker.step_values import Move, Step, StepReport, Taken


@dataclass(frozen=True, slots=True)
class HelloWanted:
    """A link asks what the worker holds; `session` tells its answer from one meant for a link lost since."""

    session: int


@dataclass(frozen=True, slots=True)
class HelloReady:
    session: int
    hello: Hello


Word = Taken | Resync | StepReport | HelloReady
Order = Snapshot | Delta | HelloWanted


class Boundary:
    """`post` is told everything in the order in which it happened; the clock is that of `laps`."""

    def __init__(
        self,
        residents: Residents,
        engine: StepEngine,
        pool: BlockPool,
        post: Callable[[Word], object],
        laps: Laps,
        tier: HostTier | None = None,
    ) -> None:
        self._residents, self._engine, self._pool, self._tier = residents, engine, pool, tier
        self._post, self._laps, self._now_ns = post, laps, laps.now_ns

    def receive(self, inbox: Iterable[Order]) -> None:
        """First: what has arrived since the last boundary."""
        for message in inbox:
            if isinstance(message, HelloWanted):
                self._post(HelloReady(message.session, self._residents.hello()))
            else:
                self._residents.offer(message)
        self._laps.lap(ORDERS)

    def take(self) -> bool:
        """Then the next version, and those behind it until one asks for a step. False when there was none.

        A prompt's chunk would otherwise wait for a step that is there for a grant alone.
        """
        has_taken = False
        while self._take_one():
            has_taken = True
            if self._residents.asks_for_step:
                break
        return has_taken

    def _take_one(self) -> bool:
        """One version with its resets, copies and swaps.

        Before Began is sent: from then on fill counts are believed, and nothing of a removed resident is touched.
        """
        taken = self._residents.take_version(self._now_ns())
        if not isinstance(taken, Taken):
            if taken is not None:
                self._post(taken)
            return taken is not None
        self._laps.lap(ORDERS)
        for move in taken.outward:
            self._move(move)
        if taken.outward:
            self._laps.lap(COPIES)
        if taken.resets:
            self._pool.reset(taken.resets)
        self._post(taken)
        self._laps.lap(ORDERS)
        for copy in taken.copies:
            self._pool.copy(copy.source, copy.target, copy.tokens)
        for move in taken.inward:
            self._move(move)
        if taken.copies or taken.inward:
            self._laps.lap(COPIES)
        return True

    def rows(self) -> Step | None:
        """Then the rows that may advance. None when there is nothing to compute or to report."""
        step = self._residents.rows_for_step(self._now_ns())
        self._laps.lap(ROWS)
        return step

    def step(self, step: Step) -> None:
        """At last the step itself, and its report."""
        started_ns = self._now_ns()
        samples = self._engine.step(step.rows) if step.rows else []
        ended_ns = self._now_ns()
        self._laps.step(step.batch_tokens)
        report = self._residents.absorb(step, samples, started_ns=started_ns, ended_ns=ended_ns)
        self._laps.lap(ABSORB)
        self._post(report)
        self._laps.lap(REPORTS)

    def _move(self, move: Move) -> None:
        assert self._tier is not None, "the checks of an order let no swap pass where there is no tier"
        started_ns = self._now_ns()
        copy = self._tier.swap_in if move.inward else self._tier.swap_out
        for block, host_block in move.pairs:
            copy(block, host_block)
        self._residents.note_moved(move, self._now_ns() - started_ns)
