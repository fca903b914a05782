"""A worker without a process: the real standing order and residents over the fake engine, stepped by hand.

Its steps take `step_s` of the test's own time. What it would send on its link comes back from `boundary`.
"""

from collections import deque
from collections.abc import Sequence

from libs.contracts.messages import (
    Ack,
    Delta,
    FencedOff,
    Hello,
    Resync,
    RowResult,
    SchedulerMessage,
    Snapshot,
    StepResult,
    WorkerReport,
)
from libs.engine.rows import Sampled, StepRow
from libs.engine.worker.residents import Residents, Taken
from libs.engine.worker.unacked import Unacked
from tests.fakes.engine import EOS_IDS, MODEL_DIGEST, NUMERICS_CLASS, FakeEngine, FakePool

MAX_MODEL_LEN = 4096


class FakeWorker:
    """One incarnation. `link_up` False loses what is sent to it; `attach` begins a link anew."""

    def __init__(
        self,
        name: str,
        role: str,
        pool: FakePool,
        *,
        nan_ids: frozenset[int] = frozenset(),
        max_batch_tokens: int = 1024,
    ) -> None:
        self.name, self.pool = name, pool
        self.engine = FakeEngine(pool, nan_ids=nan_ids)
        self.step_s = 0.02
        self.link_up = False
        self.fenced = ""
        self.steps = 0
        self.versions: list[int] = []  # as begun
        self.delivered: dict[str, dict[int, int]] = {}  # request → position → token, as frames carry them
        self.ends: dict[str, str] = {}
        identity = Hello(
            worker=name,
            role=role,
            incarnation=f"{name}-life",
            host="host",
            term=0,
            version=0,
            pool="pool",
            pool_blocks=pool.blocks,
            layout_fingerprint=b"layout",
            numerics_class=NUMERICS_CLASS,
            model_digest=MODEL_DIGEST,
            max_model_len=MAX_MODEL_LEN,
            max_batch_tokens=max_batch_tokens,
            step_number=0,
            residents=(),
            block_tokens=pool.block_tokens,
        )
        self.identity = identity
        self.residents = Residents(
            identity, eos_ids=EOS_IDS, block_tokens=pool.block_tokens, fill_counts=pool.fill_counts_N
        )
        self._inbox: deque[Snapshot | Delta] = deque()
        self._unacked = Unacked()
        self._now_ns = 0

    @property
    def incarnation(self) -> str:
        return self.identity.incarnation

    @property
    def unacked_steps(self) -> int:
        return len(self._unacked)

    def attach(self) -> list[WorkerReport]:
        """A new link: Hello, then what was never acknowledged."""
        self.link_up = True
        self._inbox.clear()
        return [self.residents.hello(), *self._unacked.pending()]

    def detach(self) -> None:
        self.link_up = False
        self._inbox.clear()

    def receive(self, message: SchedulerMessage) -> None:
        match message:
            case Ack():
                self._unacked.ack(message.step_number)
            case FencedOff():
                self.fenced = message.reason
            case Snapshot() | Delta():
                self._inbox.append(message)

    def boundary(self) -> list[WorkerReport]:
        """Take one version if there is one, then step if anything may advance; [] when parked."""
        while self._inbox:
            self.residents.offer(self._inbox.popleft())
        sent: list[WorkerReport] = []
        taken = self.residents.take_version(self._now_ns)
        if isinstance(taken, Taken):
            sent.append(taken.began)
            self.versions.append(taken.began.version)
            self.pool.reset(taken.resets)
            for copy in taken.copies:
                self.pool.copy(copy.source, copy.target, copy.tokens)
        elif isinstance(taken, Resync):
            sent.append(taken)
        result = self._step()
        if result is not None:
            sent.append(result)
        return sent if self.link_up else []

    def _step(self) -> StepResult | None:
        step = self.residents.rows_for_step(self._now_ns)
        if step is None:
            return None
        samples = self._sample(step.rows)
        started_ns, self._now_ns = self._now_ns, self._now_ns + int(self.step_s * 1e9)
        report = self.residents.absorb(step, samples, started_ns=started_ns, ended_ns=self._now_ns)
        self.steps += 1
        self._unacked.keep(report.result)
        for resident, row in zip(report.residents, report.result.rows, strict=True):
            self._frame(resident.request_id, row)
        return report.result

    def _sample(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        return self.engine.step(rows) if rows else []

    def _frame(self, request_id: str, row: RowResult) -> None:
        log = self.delivered.setdefault(request_id, {})
        for position, token in enumerate(row.ids, row.position):
            assert log.setdefault(position, token) == token, "a position changed its token"
        if row.end:
            self.ends[request_id] = row.end
