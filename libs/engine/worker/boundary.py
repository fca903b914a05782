"""What happens at a step boundary, in its order; whoever calls this owns Residents, engine and pool. No thread here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from libs.contracts.messages import Delta, Hello, Resync, Snapshot
from libs.engine.worker.laps import ABSORB, ORDERS, REPORTS, ROWS, Laps
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


Word = Taken | Resync | StepReport | HelloReady
Order = Snapshot | Delta | HelloWanted


class Boundary:
    """`post` is told everything in the order in which it happened; `now_ns` is monotonic."""

    def __init__(
        self,
        residents: Residents,
        engine: StepEngine,
        pool: BlockPool,
        post: Callable[[Word], object],
        now_ns: Callable[[], int],
        laps: Laps | None = None,
    ) -> None:
        self._residents, self._engine, self._pool = residents, engine, pool
        self._post, self._now_ns = post, now_ns
        self._laps = laps or Laps(now_ns)

    def receive(self, inbox: Iterable[Order]) -> None:
        """First: what has arrived since the last boundary."""
        for message in inbox:
            if isinstance(message, HelloWanted):
                self._post(HelloReady(message.session, self._residents.hello()))
            else:
                self._residents.offer(message)
        self._laps.lap(ORDERS)

    def take(self) -> bool:
        """Then one version with its resets and copies. False when there was none."""
        taken = self._residents.take_version(self._now_ns())
        if taken is None:
            return False
        if isinstance(taken, Taken) and taken.resets:
            self._pool.reset(taken.resets)  # before Began is sent: from then on their fill counts are believed
        self._post(taken)
        if isinstance(taken, Taken):
            for copy in taken.copies:
                self._pool.copy(copy.source, copy.target, copy.tokens)
        self._laps.lap(ORDERS)
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
