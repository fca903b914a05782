"""The scheduler's end of a standing order as a test writes it, and a worker's boundaries without its thread."""

from collections.abc import Sequence
from dataclasses import replace

from libs.contracts.messages import (
    BlockCopy,
    BlockGrant,
    Chunk,
    Delta,
    Hello,
    Resident,
    Resync,
    RowResult,
    SamplingParams,
    Snapshot,
    StepResult,
    Swap,
    Until,
)
from libs.contracts.order import StandingOrder
from libs.engine.worker.ports import Grammars
from libs.engine.worker.residents import Residents
from libs.engine.worker.step_values import StepReport, Taken
from tests.fakes.engine import EOS_IDS, VOCAB_SIZE, FakeEngine, FakePool, FakeTier

BLOCK_TOKENS = 16
IDENTITY = Hello(
    worker="w0",
    role="decode",
    incarnation="ab" * 16,
    host="local",
    term=0,
    version=0,
    pool="p",
    pool_blocks=64,
    block_tokens=BLOCK_TOKENS,
    layout_fingerprint=b"f",
    numerics_class="fake",
    model_digest="m",
    max_model_len=512,
    max_batch_tokens=64,
    step_number=0,
    residents=(),
)
PARAMS = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def prompt(tokens: int, first: int = 100) -> tuple[int, ...]:
    return tuple(range(first, first + tokens))


def resident(sequence: int, ids: Sequence[int], block_table: Sequence[int], **changes: object) -> Resident:
    """A greedy resident of its own request, nothing computed yet, free to run to max_tokens."""
    plain = Resident(
        sequence=sequence,
        request_id=f"r{sequence}",
        choice=0,
        epoch=1,
        gateway="g0",
        ids=tuple(ids),
        prompt_tokens=len(ids),
        cursor=0,
        block_table=tuple(block_table),
        until=PARAMS.max_tokens,
        params=PARAMS,
        cached_tokens=0,
        traceparent="",
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


class Orders:
    """Numbers and hashes orders as a scheduler does."""

    def __init__(self, term: int = 1) -> None:
        self.term = term
        self._order = StandingOrder()

    def snapshot(self, *residents: Resident, version: int | None = None) -> Snapshot:
        self._order.reset(self._order.version + 1 if version is None else version, residents)
        return Snapshot(self.term, self._order.version, residents, self._order.hash)

    def delta(
        self,
        *,
        removed: Sequence[int] = (),
        added: Sequence[Resident] = (),
        grants: Sequence[BlockGrant] = (),
        untils: Sequence[Until] = (),
        copies: Sequence[BlockCopy] = (),
        chunks: Sequence[Chunk] = (),
        **swaps: tuple[Swap, ...],
    ) -> Delta:
        version = self._order.version + 1
        parts = (tuple(part) for part in (removed, added, grants, untils, copies, chunks))
        delta = Delta(self.term, version, *parts, **swaps)  # type: ignore[arg-type]
        self._order.apply(delta)
        return replace(delta, order_hash=self._order.hash)


class Stepper:
    """A worker whose boundaries a test calls one by one; it has taken an empty Snapshot of term 1, version 1."""

    def __init__(
        self,
        *,
        pool: FakePool | None = None,
        nan_ids: frozenset[int] = frozenset(),
        max_batch_tokens: int = 64,
        eos_ids: Sequence[int] = EOS_IDS,
        grammars: Grammars | None = None,
    ) -> None:
        self.pool = pool or FakePool(IDENTITY.pool_blocks, BLOCK_TOKENS)
        self.tier = FakeTier(self.pool, IDENTITY.pool_blocks)
        self.engine = FakeEngine(self.pool, nan_ids=nan_ids)
        self.residents = Residents(
            replace(IDENTITY, max_batch_tokens=max_batch_tokens),
            eos_ids=eos_ids,
            vocab_size=VOCAB_SIZE,
            block_tokens=BLOCK_TOKENS,
            fill_counts=self.pool.fill_counts_N,
            grammars=grammars,
        )
        self.orders = Orders()
        self.now_ns = 1000
        self.residents.offer(self.orders.snapshot())
        assert self.step() is None

    def take(self) -> Taken | Resync | None:
        taken = self.residents.take_version(self.now_ns)
        if isinstance(taken, Taken):
            self.tier.carry_out(taken.outward, self.residents)
            self.pool.reset(taken.resets)
            for copy in taken.copies:
                self.pool.copy(copy.source, copy.target, copy.tokens)
            self.tier.carry_out(taken.inward, self.residents)
        return taken

    def step(self) -> StepResult | None:
        """One boundary, its version included; None when the worker would park or goes straight to the next one."""
        self.take()
        report = self.advance()
        return report.result if report else None

    def advance(self) -> StepReport | None:
        step = self.residents.rows_for_step(self.now_ns)
        if step is None:
            return None
        samples = self.engine.step(step.rows)
        self.now_ns += 100
        return self.residents.absorb(step, samples, started_ns=self.now_ns - 100, ended_ns=self.now_ns)

    def order(self, **changes: object) -> StepResult | None:
        """Send the next version, take it, step."""
        self.residents.offer(self.orders.delta(**changes))  # type: ignore[arg-type]
        return self.step()

    def run(self) -> list[RowResult]:
        """Step until the worker would park; every row on the way."""
        rows: list[RowResult] = []
        while (result := self.step()) is not None:
            rows.extend(result.rows)
        return rows


def ids_of(rows: Sequence[RowResult], sequence: int = 1) -> tuple[int, ...]:
    return tuple(token for row in rows if row.sequence == sequence for token in row.ids)
