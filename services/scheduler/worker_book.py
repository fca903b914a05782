"""What is agreed with one worker: its standing order, what the next version changes, what it has begun and reported.

Changes gather in `_pending` while the worker is two versions behind, and go out together. A version once built is never
changed; after a Resync or a new Hello a Snapshot stands for all of them.
"""

from collections import deque
from dataclasses import replace

from libs.contracts.messages import Ack, Chunk, Delta, Hello, Snapshot, StepResult, Swap
from libs.contracts.order import StandingOrder
from services.scheduler.choice import Choice
from services.scheduler.chunk_size import ChunkSizes, Pace
from services.scheduler.fit import StepTimeFit
from services.scheduler.pending import Extension, Pending, Planned
from services.scheduler.swap_cost import PrefillRate, SwapRates
from services.scheduler.travelling import Travelling

VERSIONS_AHEAD = 2
ACK_EVERY_STEPS = 16


class WorkerBook:
    def __init__(self, hello: Hello, now_s: float, chunk_sizes: ChunkSizes, swap_rates: SwapRates) -> None:
        self.name = hello.worker
        self.role = hello.role
        self.incarnation = hello.incarnation
        self.host = hello.host
        self.max_batch_tokens = hello.max_batch_tokens
        self._first_version = hello.version + 1
        self._came_with_work = bool(hello.residents)
        self.closed_s: float | None = None  # since when its link is closed
        self.heard_s = now_s  # of its last word, or when it got something to do
        self.is_lost = False  # given up; awaiting its end
        self.has_order = False  # a Snapshot was sent
        self.is_leaving = False  # told to stop
        self.isolates = 0  # handle of the one choice that may run here; 0 while anybody may
        self.began = hello.version
        self.last_step = 0
        self.fit, self.prefill_rate = StepTimeFit(), PrefillRate()
        self.chunk_sizes, self._travelling = chunk_sizes, Travelling(swap_rates)
        self.residents: dict[int, Choice] = {}  # in the order, or about to be
        self.prefilling: dict[int, Choice] = {}  # those of them that need chunks
        self.reserved: set[int] = set()  # handles being prefilled elsewhere, to be decoded here
        self.leaving: dict[int, tuple[Choice, int]] = {}  # removed by that version, not yet confirmed
        self._order = StandingOrder()
        self._order.version = hello.version
        self._pending = Pending()
        self._unbegun: dict[int, int] = {}  # handle → version that adds it
        self._extending: list[Extension] = []  # in versions not yet begun
        self._copying: dict[int, tuple[Choice, int]] = {}  # copies, or swaps in, of that version, not yet reported
        self._planned: deque[Planned] = deque()
        self._acked_step = 0
        self._owes_ack = False

    @property
    def next_version(self) -> int:
        return self._order.version + 1

    @property
    def is_reachable(self) -> bool:
        return self.closed_s is None and not self.is_lost

    @property
    def is_ready(self) -> bool:
        """It may be given something to do."""
        return self.is_reachable and not self.is_leaving

    @property
    def has_foreign_work(self) -> bool:
        """It may still write where an older term let it, until it begins our first version."""
        return self._came_with_work and self.began < self._first_version

    @property
    def has_left(self) -> bool:
        """It was told to stop, and has nothing left that it could write to."""
        return self.is_leaving and not (self.residents or self.leaving or self.has_untaken or self.has_foreign_work)

    @property
    def has_untaken(self) -> bool:
        """A version is on its way, or waits there for the end of a step."""
        return self.began < self._order.version

    @property
    def step_s(self) -> float:
        """How long the longest step it may be in should take."""
        tokens = self.decoding_rows + sum(planned.tokens for planned in self._planned)
        return self.fit.predict_s(tokens, len(self.residents)) + self._travelling.expected_s

    @property
    def may_send(self) -> bool:
        return self.is_reachable and self.has_order and self.next_version - self.began <= VERSIONS_AHEAD

    @property
    def decoding_rows(self) -> int:
        return len(self.residents) - len(self.prefilling)

    @property
    def load(self) -> int:
        """Rows it has or will have."""
        return len(self.residents) + len(self.reserved)

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens it still has to compute."""
        return sum(len(choice.ids) - choice.cursor for choice in self.prefilling.values())

    def tables(self) -> dict[int, tuple[int, ...]]:
        """Handle → block table, as the order will say once the next version is sent."""
        tables = {handle: entry.block_table for handle, entry in self._order.entries.items()}
        for handle in self._pending.removed:
            del tables[handle]
        tables |= {handle: tuple(choice.table) for handle, choice in self._pending.added.items()}
        for handle, blocks in self._pending.grants.items():
            tables[handle] += tuple(blocks)
        return tables

    # What the next version changes

    def add(self, choice: Choice) -> None:
        self.residents[choice.handle] = self._pending.added[choice.handle] = choice
        choice.parked_s = None
        self._extending.append(Extension(self.next_version, choice.handle, 0))
        if len(choice.ids) - choice.cursor > 1:
            self.prefilling[choice.handle] = choice

    def grant(self, choice: Choice, blocks: list[int]) -> None:
        """Blocks just appended to its table. An add not yet sent carries the whole table."""
        if blocks and choice.handle not in self._pending.added:
            self._pending.grants.setdefault(choice.handle, []).extend(blocks)
            self._extending.append(Extension(self.next_version, choice.handle, len(choice.table) - len(blocks)))

    def raise_until(self, choice: Choice, until: int) -> None:
        """It has stopped at its `until`, and goes on where it is."""
        choice.until = until
        if choice.handle not in self._pending.added:
            self._pending.untils[choice.handle] = until

    @property
    def has_untaken_chunk(self) -> bool:
        """A chunk waits for the end of a step."""
        return bool(self._planned) and self._planned[-1].version > self.began

    def plan_chunk(self, choice: Choice, tokens: int, pace: Pace) -> None:
        self._pending.chunks.append(Chunk(choice.handle, tokens))
        self._planned.append(Planned(self.next_version, choice, tokens, pace))
        choice.chunked += tokens

    def swap_out(self, swap: Swap) -> int:
        """An item of the next version, which is to remove its sequence. Returns that version."""
        self._pending.swap_outs.append(swap)
        return self.next_version

    def is_unsent(self, choice: Choice) -> bool:
        """No version has named it yet."""
        return choice.handle in self._pending.added

    def remove(self, choice: Choice) -> int:
        """Take it out of the order. Returns the version that does; 0 when no version ever named it."""
        handle = choice.handle
        del self.residents[handle]
        if self.isolates == handle:
            self.isolates = 0
        self.prefilling.pop(handle, None)
        self._pending.grants.pop(handle, None)
        self._pending.untils.pop(handle, None)
        if self._pending.added.pop(handle, None) is not None:
            return 0
        self._pending.removed.append(handle)
        return self.next_version

    def had(self, choice: Choice, version: int) -> bool:
        """Whether a step under this version may have had it as a resident."""
        return not self.is_unsent(choice) and self._unbegun.get(choice.handle, 0) <= version

    def may_compute(self, choice: Choice, slots_left: int) -> bool:
        """Whether a step may have begun with this resident in it."""
        return self.had(choice, self.began) and self.may_have_computed(choice, slots_left)

    def may_have_computed(self, choice: Choice, slots_left: int) -> bool:
        """As above, for one that is dead: it may have begun what it had no time to say that it began."""
        if self.is_unsent(choice):
            return False
        return choice.chunked > 0 or (len(choice.ids) - choice.cursor == 1 and slots_left > 0)

    def begun_blocks(self, choice: Choice) -> int:
        """Blocks of its table that the worker has made fresh before it said Began: their fill counts are its own."""
        unbegun = (extension.blocks for extension in self._extending if extension.handle == choice.handle)
        return min(unbegun, default=len(choice.table))

    def give_up(self) -> list[Choice]:
        """It is lost: nothing that it says counts any more. Returns all that it held or was about to, oldest first."""
        self.is_lost, self.isolates = True, 0
        held = self.residents | {handle: choice for handle, (choice, _) in self.leaving.items()}
        self.residents, self.prefilling, self.leaving = {}, {}, {}
        self._pending, self._copying = Pending(), {}
        self._planned.clear()
        self.reserved.clear()
        return [held[handle] for handle in sorted(held)]

    # What goes out

    def take_delta(self, term: int, now_s: float) -> tuple[Delta, tuple[Choice, ...]] | None:
        """The next version and whom it adds, or None when nothing changes or the worker has enough versions."""
        pending = self._pending
        if not pending or not self.may_send:
            return None
        delta, added = pending.delta(term, self.next_version), tuple(pending.added.values())
        if not self.has_untaken:
            self.heard_s = now_s  # what it has to do begins now
        self._order.apply(delta)
        self._travelling.note(delta)
        for choice in added:
            self._unbegun[choice.handle] = delta.version
            if choice.has_items:
                self._copying[choice.handle] = (choice, delta.version)
        self._pending = Pending()
        self._owes_ack = self._owes_ack or bool(delta.removed)
        return replace(delta, order_hash=self._order.hash), added

    def drop_untaken(self, taken_version: int) -> list[Choice]:
        """It dropped all after `taken_version`: those chunks are planned again. Returns whose add was among it, and who
        are leaving: they have left.
        """
        while self._planned and self._planned[-1].version > taken_version:
            self._settle(self._planned.pop())
        never = [c for handle, (c, _) in self.leaving.items() if self._unbegun.get(handle, 0) > taken_version]
        for choice in never:
            del self.leaving[choice.handle], self._unbegun[choice.handle]
        return never

    def take_snapshot(self, term: int, taken_version: int) -> tuple[Snapshot, tuple[Choice, ...]]:
        """The whole order, one version above all sent, for a worker that dropped all after `taken_version`; and whom
        it adds. Residents whose copy it dropped are added again by the next delta, together with the copy.
        """
        self.has_order = True
        unheard = {handle for handle, version in self._unbegun.items() if version > taken_version}
        unheard |= self._pending.added.keys()
        fresh = [choice for handle, choice in self.residents.items() if handle in unheard]
        again = {choice.handle: choice for choice in fresh if choice.has_items}
        version = max(self._order.version, taken_version) + 1
        residents = tuple(c.resident() for handle, c in self.residents.items() if handle not in again)
        self._order.reset(version, residents)
        self._pending = Pending(added=again)
        self._extending = [
            replace(extension, version=version + (extension.handle in again))
            for extension in self._extending
            if extension.version > taken_version
        ]
        added = tuple(choice for choice in fresh if choice.handle not in again)
        self._unbegun = {choice.handle: version for choice in added}
        self._copying = {handle: copying for handle, copying in self._copying.items() if copying[1] <= taken_version}
        self._travelling.dropped(taken_version)
        return Snapshot(term, version, residents, self._order.hash), added

    def take_ack(self, term: int) -> Ack | None:
        """An Ack when the worker has kept many results, or after an end."""
        unacked = self.last_step - self._acked_step
        if not unacked or not (self._owes_ack or unacked >= ACK_EVERY_STEPS):
            return None
        self._acked_step, self._owes_ack = self.last_step, False
        return Ack(term, self.last_step)

    # What comes in

    def begin(self, version: int) -> None:
        self.began = max(self.began, version)
        self._extending = [extension for extension in self._extending if extension.version > version]
        self._unbegun = {handle: added for handle, added in self._unbegun.items() if added > version}

    def report(self, result: StepResult) -> list[Choice]:
        """Note a new StepResult. Returns whose copies, or blocks brought back, it reports done."""
        self.last_step = result.step_number
        if result.batch_tokens:
            seconds = (result.ended_ns - result.started_ns) / 1e9
            self.fit.report(result.batch_tokens, len(result.rows), seconds)
            has_chunk = result.batch_tokens > len(result.rows) and self._planned
            self.chunk_sizes.report(result.batch_tokens, seconds, self._planned[0].pace if has_chunk else None)
            if has_chunk:
                self.prefill_rate.report(result.batch_tokens, seconds)
        self._travelling.reported(result.version)
        while self._planned and self._planned[0].version <= result.version:
            self._settle(self._planned.popleft())
        copied = [choice for choice, version in self._copying.values() if version <= result.version]
        for choice in copied:
            del self._copying[choice.handle]
        return copied

    def confirm(self, version: int) -> list[Choice]:
        """A StepResult of this version is in: whoever it, or an older one, removed has left."""
        left = [choice for choice, removal in self.leaving.values() if removal <= version]
        for choice in left:
            del self.leaving[choice.handle]
        return left

    def _settle(self, planned: Planned) -> None:
        """A chunk item ran, or never will: what it left uncommitted may be planned again."""
        planned.choice.chunked -= planned.tokens
