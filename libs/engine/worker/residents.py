"""A worker's state under its standing order: which version is taken next, which rows may advance, what they reported.

Pure: no clock, no I/O, no torch. One owner calls, at each step boundary: `offer` for what arrived, `take_version` until
one `asks_for_step`, its resets and copies each time, `rows_for_step`, the step, `absorb`. Rules: docs/protocol.md.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import (
    Began,
    BlockCopy,
    Delta,
    Hello,
    Resident,
    Resync,
    RowResult,
    Snapshot,
    StepResult,
    Swap,
    Swapped,
)
from libs.contracts.order import StandingOrder
from libs.contracts.row_words import FILL_BEHIND, GRAMMAR_BEHIND, OUT_OF_GRANT
from libs.engine.rows import Sampled
from libs.engine.worker.forks import forked
from libs.engine.worker.held import Held
from libs.engine.worker.ports import FillCounts, Grammars
from libs.engine.worker.step_values import Move, Step, StepReport, Taken
from libs.engine.worker.waits import Waits


class Residents:
    """Not safe to share between threads; owned by whoever steps."""

    def __init__(
        self,
        identity: Hello,
        *,
        eos_ids: Iterable[int],
        vocab_size: int,
        block_tokens: int,
        fill_counts: FillCounts,
        grammars: Grammars | None = None,
    ) -> None:
        """`identity` is the Hello of a worker without residents; `fill_counts` is the pool's own, read when needed.

        Without `grammars` a sequence that has one ends before it begins.
        """
        self.dropped = 0  # orders of a lower term, a version that was here before, or none to build on
        self.term, self._order_term, self.version = identity.term, identity.term, identity.version
        self.step_number = identity.step_number
        self._identity = identity
        self._eos_ids, self._vocab_size = frozenset(eos_ids), vocab_size
        self._block_tokens = block_tokens
        self._fill_counts, self._grammars = fill_counts, grammars
        self._order = StandingOrder()
        self._held: dict[int, Held] = {}
        self._queue: deque[Snapshot | Delta] = deque()
        self._queued_version = identity.version
        self._awaits_snapshot = True
        self._chunks: dict[int, int] = {}
        self._waits = Waits()
        self._removed: list[RowResult] = []
        self._found: list[RowResult] = []
        self._unsure: list[Held] = []  # of which the scheduler does not know where they stand
        self._copies_done = 0
        self._swapped: list[Swapped] = []

    @property
    def is_vacant(self) -> bool:
        return not self._held

    @property
    def asks_for_step(self) -> bool:
        """The version taken last has items that the next step computes or reports."""
        return bool(self._chunks or self._copies_done or self._swapped)

    def hello(self) -> Hello:
        """Who this worker is and what it holds; orders not yet taken are void from here on, until a Snapshot."""
        self._await_snapshot()
        return replace(
            self._identity,
            term=self.term,
            version=self.version,
            step_number=self.step_number,
            residents=tuple(held.to_wire() for held in self._held.values()),
        )

    def offer(self, message: Snapshot | Delta) -> None:
        """Queue an order. Stale ones, repeated ones, and deltas while a Snapshot is awaited are dropped and counted."""
        if message.term < self.term:
            self.dropped += 1
        elif isinstance(message, Snapshot):
            self.term = message.term
            self._queue.clear()
            self._queue.append(message)
            self._awaits_snapshot, self._queued_version = False, message.version
        elif self._awaits_snapshot or message.version <= self._queued_version:
            self.dropped += 1
        else:
            self._queue.append(message)
            self._queued_version = message.version

    def take_version(self, now_ns: int) -> Taken | Resync | None:
        """Take one queued version, or None. Resync: it does not fit, the residents step on as they were."""
        if not self._queue:
            return None
        message = self._queue.popleft()
        if not self._reorder(message):
            self._await_snapshot()
            return Resync(self._identity.incarnation, message.term, self.version)
        self.version = message.version
        if isinstance(message, Snapshot):
            return self._take_snapshot(message, now_ns)
        return self._take_delta(message, now_ns)

    def rows_for_step(self, now_ns: int) -> Step | None:
        """Everything that may advance now; None when there is nothing to step and nothing to report."""
        for unsure in self._unsure:
            unsure.seek(self._fill_counts, self._block_tokens)
        self._found += [unsure.standing() for unsure in self._unsure]
        self._unsure = []
        held = [h for h in self._held.values() if h.to_commit == 1 and not h.is_stopped and self._may_write(h, now_ns)]
        rows = [h.row(1) for h in held]
        budget = self._identity.max_batch_tokens - len(rows)
        for sequence, asked in self._chunks.items():
            chunked = self._held.get(sequence)
            if chunked is None or chunked.to_commit == 1 or chunked.is_stopped or not self._may_write(chunked, now_ns):
                continue
            tokens = min(asked, chunked.to_commit - chunked.awaits_grammar, self._slots(chunked), budget)
            if tokens > 0:
                budget -= tokens
                held.append(chunked)
                rows.append(chunked.row(tokens))
        self._chunks = {}
        if self._grammars is not None:
            self._grammars.fill_masks()
        if not rows and not (self._removed or self._found or self._waits or self._copies_done or self._swapped):
            return None
        return Step(tuple(rows), tuple(held))

    def note_moved(self, move: Move, took_ns: int) -> None:
        """A move was carried out; the next report tells it."""
        self._swapped.append(Swapped(move.sequence, move.inward, len(move.pairs), took_ns))

    def absorb(self, step: Step, samples: Sequence[Sampled | None], *, started_ns: int, ended_ns: int) -> StepReport:
        """Take in what the engine answered to `step.rows`, entry by entry."""
        reports: list[tuple[Resident, RowResult]] = []  # of the forks of a resident before its own
        for row, held, sampled in zip(step.rows, step.held, samples, strict=True):
            assert sampled is not None or row.sample is None, "the engine answers every row that asks for a token"
            result = held.commit(row, sampled)
            reports += [*forked(held, result, sampled), (held.resident, result)]
            if held.to_commit == 1 and not held.is_stopped and not self._slots(held):
                self._waits.note(held, OUT_OF_GRANT, ended_ns)  # said with the token that used the last slot
        self.step_number += 1
        done = StepResult(
            self._identity.incarnation,
            self._order_term,
            self.version,
            self.step_number,
            tuple(result for _, result in reports),
            self._waits.take(),
            tuple(self._removed),
            self._copies_done,
            step.batch_tokens,
            started_ns,
            ended_ns,
            tuple(self._found),
            tuple(self._swapped),
        )
        self._removed, self._found, self._copies_done, self._swapped = [], [], 0, []
        return StepReport(done, tuple(resident for resident, _ in reports))

    def _await_snapshot(self) -> None:
        self._queue.clear()
        self._awaits_snapshot = True

    def _reorder(self, message: Snapshot | Delta) -> bool:
        """Bring the order to this version; False when it does not lead there."""
        if isinstance(message, Snapshot):
            self._order.reset(message.version, message.residents)
        else:
            if message.term != self.term or message.version != self.version + 1:
                return False
            try:
                self._order.apply(message)
            except KeyError:
                return False
        return self._order.hash == message.order_hash

    def _take_delta(self, delta: Delta, now_ns: int) -> Taken:
        outward = tuple(self._outward(swap) for swap in delta.swap_outs)
        removed = [self._remove(sequence, now_ns, is_reported=True) for sequence in delta.removed]
        resets = [block for resident in delta.added for block in self._add(resident)]
        for grant in delta.grants:
            self._held[grant.sequence].table.extend(grant.block_ids)
            resets.extend(grant.block_ids)
        for change in delta.untils:
            self._held[change.sequence].until = change.until
        self._chunks = _tokens_by_sequence(delta)
        self._copies_done = len(delta.copies)
        taken = self._taken(now_ns, resets, delta.added, removed, delta.copies)
        return replace(taken, outward=outward, inward=tuple(Move(s.sequence, True, _pairs(s)) for s in delta.swap_ins))

    def _take_snapshot(self, snapshot: Snapshot, now_ns: int) -> Taken:
        """Keep residents that go on as they are (the worker knows more of them), drop and add the rest.

        Handles are unique only within a term, so residents are recognised by what they stand for. What only an older
        term's order named goes without a report: its successor knows it from Hello.
        """
        is_same_term = snapshot.term == self._order_term
        self._order_term = snapshot.term
        kept, added, resets = {}, [], list[int]()
        for resident in snapshot.residents:
            held = next((h for h in self._held.values() if h.goes_on_as(resident)), None)
            if held is None:
                added.append(resident)
            else:
                kept[held.resident.sequence] = (held, resident)
        dropped = [sequence for sequence in self._held if sequence not in kept]
        removed = [self._remove(sequence, now_ns, is_reported=is_same_term) for sequence in dropped]
        self._held = {}
        for held, resident in kept.values():
            resets.extend(held.follow(resident))
            self._held[resident.sequence] = held
        if not is_same_term:
            self._unsure = list(self._held.values())
        resets.extend(block for resident in added for block in self._add(resident))
        self._chunks = {}
        return self._taken(now_ns, resets, added, removed)

    def _taken(
        self,
        at_ns: int,
        resets: Iterable[int],
        added: Iterable[Resident],
        removed: Iterable[Resident],
        copies: tuple[BlockCopy, ...] = (),
    ) -> Taken:
        began = Began(self._identity.incarnation, self._order_term, self.version)
        return Taken(at_ns, began, tuple(resets), copies, tuple(added), tuple(removed), not self._held)

    def _add(self, resident: Resident) -> tuple[int, ...]:
        """The fresh blocks of a new resident: those wholly at or above its cursor.

        With an id that the model does not have it has ended before it begins, which is told at once.
        """
        held = self._held[resident.sequence] = Held(resident, self._eos_ids)
        held.prepare(self._vocab_size, self._grammars)
        if held.end or resident.reach > resident.cursor:
            self._unsure.append(held)
        return resident.block_table[blocks_for(resident.cursor, self._block_tokens) :]

    def _remove(self, sequence: int, now_ns: int, *, is_reported: bool) -> Resident:
        held = self._held.pop(sequence)
        if is_reported:
            self._waits.note(held, "", now_ns)
            self._removed.append(held.result(held.position))
        return held.resident

    def _outward(self, swap: Swap) -> Move:
        """Of a sequence, only what is committed; what it writes next, nobody may go on from."""
        pairs = _pairs(swap)
        if swap.sequence:
            held = self._held.get(swap.sequence)
            committed = set(held.table[: blocks_for(held.cursor, self._block_tokens)]) if held else set()
            pairs = tuple(pair for pair in pairs if pair[0] in committed)
        return Move(swap.sequence, False, pairs)

    def _slots(self, held: Held) -> int:
        """Granted slots from the cursor on."""
        return len(held.table) * self._block_tokens - held.cursor

    def _may_write(self, held: Held, now_ns: int) -> bool:
        """Whether the next token has a slot and all before it are in the pool; else the wait is noted."""
        reason = ""
        if self._slots(held) <= 0:
            reason = OUT_OF_GRANT
        elif not held.catch_up(self._fill_counts, self._block_tokens):
            reason = FILL_BEHIND
        elif held.to_commit == 1 and held.awaits_grammar:
            reason = GRAMMAR_BEHIND
        self._waits.note(held, reason, now_ns)
        return not reason


def _pairs(swap: Swap) -> tuple[tuple[int, int], ...]:
    return tuple(zip(swap.blocks, swap.host_blocks, strict=True))


def _tokens_by_sequence(delta: Delta) -> dict[int, int]:
    tokens: dict[int, int] = {}
    for chunk in delta.chunks:
        tokens[chunk.sequence] = tokens.get(chunk.sequence, 0) + chunk.tokens
    return tokens
