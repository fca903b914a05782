"""A worker without a process: the real standing order and residents over the fake engine, stepped by hand.

Its steps take `step_s`, and `token_s` a token, of the
test's own time. What it would send on its link comes back from `boundary`. Residents
of which `garbles` is true have wrong ids written into their blocks: nobody may read what a fenced attempt writes.
"""

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from libs.contracts.messages import (
    Ack,
    Began,
    Delta,
    FencedOff,
    Hello,
    Resident,
    Resync,
    RowResult,
    SchedulerMessage,
    Snapshot,
    StepResult,
)
from libs.engine.rows import Sampled, StepRow
from libs.engine.worker.residents import Residents
from libs.engine.worker.step_values import Move, Step, Taken
from libs.engine.worker.unacked import Unacked
from tests.fakes.engine import EOS_IDS, MODEL_DIGEST, NUMERICS_CLASS, FakeEngine, FakePool, FakeTier, draw

MAX_MODEL_LEN = 4096

Word = Hello | Began | StepResult | Resync  # on its link; here nothing travels in bundles


class FakeWorker:
    """One incarnation. `link_up` False loses what is sent to it; `attach` begins a link anew."""

    def __init__(
        self,
        name: str,
        role: str,
        pool: FakePool,
        *,
        nan_ids: frozenset[int] = frozenset(),
        vocab_size: int = 1 << 16,  # prompts of tests have ids that the fake engine does not draw
        max_batch_tokens: int = 1024,
        tier: FakeTier | None = None,
    ) -> None:
        self.name, self.pool, self.tier = name, pool, tier
        self.engine = FakeEngine(pool, nan_ids=nan_ids)
        self.step_s, self.token_s = 0.02, 0.0
        self.took: list[tuple[float, int]] = []  # seconds and rows of each step
        self.rows: list[StepRow] = []  # all that it computed
        self.link_up = False
        self.garbles: Callable[[Resident], bool] = lambda resident: False
        self.on_frame: Callable[[Resident, RowResult], object] = lambda resident, row: None
        self.fenced, self.steps, self._now_ns = "", 0, 0
        self.versions: list[int] = []  # as begun
        self.delivered: dict[str, dict[int, int]] = {}  # request → position → token, as frames carry them, of choice 0
        self.ends: dict[str, str] = {}
        self.identity = _identity(name, role, pool, tier, max_batch_tokens)
        self.residents = Residents(
            self.identity,
            eos_ids=EOS_IDS,
            vocab_size=vocab_size,
            block_tokens=pool.block_tokens,
            fill_counts=pool.fill_counts_N,
        )
        self._inbox: deque[Snapshot | Delta] = deque()
        self._unacked = Unacked()
        self._drawn: dict[tuple[str, int], dict[int, int]] = {}  # as delivered, by request and epoch

    @property
    def incarnation(self) -> str:
        return self.identity.incarnation

    @property
    def unacked_steps(self) -> int:
        return len(self._unacked)

    def attach(self) -> list[Word]:
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

    def boundary(self) -> list[Word]:
        """Take one version if there is one, then step if anything may advance; [] when parked."""
        while self._inbox:
            self.residents.offer(self._inbox.popleft())
        sent: list[Word] = []
        taken = self.residents.take_version(self._now_ns)
        if isinstance(taken, Taken):
            self._move(taken.outward)
            sent.append(taken.began)
            self.versions.append(taken.began.version)
            self.pool.reset(taken.resets)
            for copy in taken.copies:
                self.pool.copy(copy.source, copy.target, copy.tokens)
            self._move(taken.inward)
        elif isinstance(taken, Resync):
            sent.append(taken)
        result = self._step()
        if result is not None:
            sent.append(result)
        return sent if self.link_up else []

    def _move(self, moves: tuple[Move, ...]) -> None:
        if moves:
            assert self.tier is not None
            self.tier.carry_out(moves, self.residents)

    def _step(self) -> StepResult | None:
        step = self.residents.rows_for_step(self._now_ns)
        if step is None:
            return None
        samples = self._sample(step)
        took_s = self.step_s + self.token_s * sum(len(row.token_ids) for row in step.rows)
        self.took.append((took_s, len(step.rows)))
        self.rows += step.rows
        started_ns, self._now_ns = self._now_ns, self._now_ns + int(took_s * 1e9)
        report = self.residents.absorb(step, samples, started_ns=started_ns, ended_ns=self._now_ns)
        self.steps += 1
        self._unacked.keep(report.result)
        for resident, row in zip(report.residents, report.result.rows, strict=True):
            if resident.choice == 0:
                self._frame(resident.request_id, row)
            if not resident.candidates:
                self.on_frame(resident, row)
        return report.result

    def _sample(self, step: Step) -> list[Sampled | None]:
        garbled = [self.garbles(held.resident) for held in step.held]
        rows = [
            replace(row, token_ids=[token ^ 1 for token in row.token_ids]) if is_garbled else row
            for row, is_garbled in zip(step.rows, garbled, strict=True)
        ]
        samples = self.engine.step(rows) if rows else []
        for index, held in enumerate(step.held):
            spec = step.rows[index].sample
            if garbled[index] and spec is not None:  # what it draws is right all the same
                ids, forks = array("I", held.ids), step.rows[index].forks
                samples[index] = replace(draw(ids, spec), forks=tuple(draw(ids, fork) for fork in forks))
        return samples

    def _frame(self, request_id: str, row: RowResult) -> None:
        log, drawn = self.delivered.setdefault(request_id, {}), self._drawn.setdefault((request_id, row.epoch), {})
        for position, token in enumerate(row.ids, row.position):
            assert drawn.setdefault(position, token) == token, "a position changed its token"
            log[position] = token
        if row.end:
            self.ends[request_id] = row.end


def _identity(name: str, role: str, pool: FakePool, tier: FakeTier | None, max_batch_tokens: int) -> Hello:
    return Hello(
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
        host_pool="tier" if tier else "",
        host_blocks=tier.blocks if tier else 0,
    )
