"""What was decided, as records of the local trace ring: one per order, per reported step and per change of a reason.

Beside the core: it looks at the events and commands of a turn and at the State after it, and changes nothing.
"""

from collections.abc import Callable, Sequence

from libs.contracts.messages import Delta, Gone, Hello, Snapshot, StepResult
from libs.contracts.trace_records import Arrived, Decided, Order, Report, WorkerLost
from libs.runtime.ring import Ring
from services.scheduler import events as core
from services.scheduler.choice import Noted, Phase
from services.scheduler.events import Command, Event, KillWorker, Send
from services.scheduler.reasons import Reason
from services.scheduler.shedding import least_s
from services.scheduler.state import State
from services.scheduler.tables import match

LONGEST_NS = 250_000_000  # a record of plain steps is written after so long


class DecisionRecords:
    """`on_turn` is one of the Loop's."""

    def __init__(self, ring: Ring, state: State, to_ns: Callable[[float], int]) -> None:
        """`to_ns` makes a decision's time one of the monotonic clock."""
        self._ring, self._state, self._to_ns = ring, state, to_ns
        self._names: dict[int, str] = {}  # handle → request, of whom an order named
        self._workers: dict[str, str] = {}  # incarnation → worker
        self._held = 0
        self._plain: dict[str, Report] = {}  # by worker, not written yet

    def on_turn(
        self, now_s: float, events: Sequence[Event], commands: Sequence[Command], journal: Sequence[Noted]
    ) -> None:
        at_ns = self._to_ns(now_s)
        held = self._state.memory.pool.held_blocks
        for event in events:
            if isinstance(event, StepResult):
                self._reported(at_ns, event, held)
            elif isinstance(event, core.Arrived):
                sequence = event.sequence
                self._ring.put(Arrived(sequence.request_id, at_ns, len(sequence.ids)))
            elif isinstance(event, Hello):
                self._workers[event.incarnation] = event.worker
            elif isinstance(event, Gone) and (worker := self._workers.pop(event.incarnation, "")):
                self._lost(at_ns, worker)
        for noted in journal:
            self._decided(at_ns, noted, held)
        for command in commands:
            if isinstance(command, Send):
                self._ordered(at_ns, command, held)
            elif isinstance(command, KillWorker):
                self._lost(at_ns, self._worker(command.incarnation))
        self._held = held

    def _lost(self, at_ns: int, worker: str) -> None:
        if (known := self._plain.pop(worker, None)) is not None:
            self._ring.put(known)
        self._ring.put(WorkerLost(at_ns, worker))

    def _decided(self, at_ns: int, noted: Noted, held: int) -> None:
        choice, reason = noted
        state = self._state
        is_waiting = choice.phase is Phase.WAITING and reason is choice.reason
        older = state.queue.ahead_of(choice) if is_waiting else 0
        memory = state.memory
        needs = memory.blocks_for(min(len(choice.ids) + 1, choice.slots)) - len(choice.table) if is_waiting else 0
        total = memory.pool.total_blocks
        left_ms = needs_ms = 0
        if reason is Reason.SHED:
            left_ms = round(1000 * (choice.deadline_s - choice.since_s))
            needs_ms = round(1000 * least_s(state, choice, len(match(memory, choice).blocks)))
        running = len(state.running)
        self._ring.put(
            Decided(
                choice.request_id,
                at_ns,
                reason,
                older,
                running,
                needs,
                held,
                total,
                left_ms,
                needs_ms,
                *_costs_ns(noted),
            )
        )

    def _ordered(self, at_ns: int, command: Send, held: int) -> None:
        order = command.message
        if not isinstance(order, Delta | Snapshot):
            return
        state, worker = self._state, self._worker(command.incarnation)
        added = order.added if isinstance(order, Delta) else order.residents
        for resident in added:
            self._names[resident.sequence] = resident.request_id
        removed, granted, chunks = self._changes(order)
        book = state.workers.get(command.incarnation)
        self._ring.put(
            Order(
                at_ns,
                worker,
                order.version,
                tuple((resident.request_id, resident.cursor, len(resident.ids)) for resident in added),
                removed,
                granted,
                chunks,
                self._held,
                held,
                state.memory.pool.total_blocks,
                len(state.queue) + len(state.swapped),
                len(book.residents) if book is not None else 0,
            )
        )

    def _changes(
        self, order: Delta | Snapshot
    ) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
        """What an order takes away, grants, and has computed. A handle that a Snapshot dropped keeps its name."""
        if isinstance(order, Snapshot):
            return (), (), ()
        removed = tuple(self._names.pop(handle, "") for handle in order.removed)
        granted = tuple((self._names.get(grant.sequence, ""), len(grant.block_ids)) for grant in order.grants)
        chunks = tuple((self._names.get(chunk.sequence, ""), chunk.tokens) for chunk in order.chunks)
        return removed, granted, chunks

    def _reported(self, at_ns: int, result: StepResult, held: int) -> None:
        """Steps in a row that ask nothing of us, and change no block, become one record."""
        worker = self._worker(result.incarnation)
        known = self._plain.pop(worker, None)
        is_plain = result.batch_tokens == len(result.rows) and not (result.removed or result.found or result.waits)
        if known is not None and not (is_plain and known.last + 1 == result.step_number and held == known.held_after):
            self._ring.put(known)
            known = None
        first = result.step_number if known is None else known.first
        begun_ns = at_ns if known is None else known.at_ns
        tokens = result.batch_tokens + (0 if known is None else known.batch_tokens)
        report = Report(begun_ns, at_ns, worker, first, result.step_number, tokens, len(result.rows), self._held, held)
        if is_plain and at_ns - begun_ns < LONGEST_NS:
            self._plain[worker] = report
        else:
            self._ring.put(report)

    def _worker(self, incarnation: str) -> str:
        return self._workers.get(incarnation, incarnation)


def _costs_ns(noted: Noted) -> tuple[int, int]:
    """(swap, recompute), as they were weighed when it was preempted."""
    choice, reason = noted
    if choice.costs is None or reason not in (Reason.PREEMPTED_SWAP, Reason.PREEMPTED_RECOMPUTE):
        return -1, -1
    swap_s, recompute_s = choice.costs.swap_s, choice.costs.recompute_s
    return -1 if swap_s == float("inf") else int(swap_s * 1e9), int(recompute_s * 1e9)
