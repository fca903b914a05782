"""The scheduler's memory with workers that write what they are told: what is in every block is known, token by token.

A written token is the whole sequence up to it. So whoever reads a block that was reused too early, or another prompt's,
or that somebody else writes as well, finds what it did not expect.
"""

from libs.contracts.messages import SamplingParams, Sequence
from services.scheduler import keeping, tables
from services.scheduler.audit import audit_memory
from services.scheduler.choice import Choice
from services.scheduler.eviction import ANYONE, Caching
from services.scheduler.memory import Memory
from services.scheduler.prefix import Awaited
from services.scheduler.state import Policy, State
from tests.model.contents import BLOCK_TOKENS, GARBAGE, Contents, Written

CHOICES_MAX = 12
LONGEST_TOKENS = 40
# What prompts are made of: they part inside of blocks, at their ends, and not at all.
STEMS = ((1,) * 9, (1,) * 4 + (2,) * 7, (1, 1, 3, 3, 3, 3, 3, 3), (5,) * 17, (5,) * 6)


class MemoryModel:
    """Each move takes a number that chooses among what is possible; one that is impossible does nothing."""

    def __init__(self, blocks: int, caching: Caching, host_blocks: int = 0) -> None:
        self.state = State(Policy("c0", "m", caching=caching), 1)
        self.memory = self.state.memory = Memory(blocks, BLOCK_TOKENS, caching, host_blocks)
        self.contents = Contents(blocks)
        self.running: list[Choice] = []
        self.waiting: list[Choice] = []
        self.parked: dict[int, tuple[Choice, Awaited]] = {}
        self.versions: dict[str, int] = {}
        self.lost: set[str] = set()
        self.lives = 0
        for _ in range(2):
            self._begin_life()

    # Moves

    def arrive(self, number: int) -> None:
        if len(self.state.choices) < CHOICES_MAX:
            self._start(self._added(number), number)

    def start(self, number: int) -> None:
        if self.waiting:
            self._start(self.waiting[number % len(self.waiting)], number)

    def write(self, number: int) -> None:
        """A worker computes some tokens of a choice, and reports them."""
        if not self.running:
            return
        choice = self.running[number % len(self.running)]
        self.contents.haunt()
        self._copy(choice)
        self._read(choice)
        room = len(choice.table) * BLOCK_TOKENS
        end = min(choice.cursor + 1 + number // 16 % 9, len(choice.ids), room)
        for position in range(choice.cursor, end):
            block = choice.table[position // BLOCK_TOKENS]
            self._check_own(choice, block, position % BLOCK_TOKENS)
            self.contents.write(block, position % BLOCK_TOKENS, self._expected(choice, position))
        self._wake(tables.commit(self.memory, choice, max(end, choice.cursor)))
        if end == len(choice.ids) < LONGEST_TOKENS:
            choice.ids.append(sum(choice.ids) % 3 + 1)
            self._drew(choice)

    def grant(self, number: int) -> None:
        if self.running:
            choice = self.running[number % len(self.running)]
            wanting = self._wanting(choice)
            if self.memory.available_blocks(wanting) and self.memory.make_room(1, wanting):
                self.contents.make_fresh(tables.grant(self.memory, choice, 1))

    def end(self, number: int) -> None:
        """It ends, or is cancelled: by a version that its worker may not have begun yet."""
        if self.running:
            choice = self._leave(number)
            self._drop(choice)

    def preempt(self, number: int) -> None:
        """Its blocks go, what is known of it stays."""
        if self.running:
            choice = self._leave(number)
            self._wake(tables.release(self.memory, choice))
            self.waiting.append(choice)

    def move(self, number: int) -> None:
        """It is taken from a worker that confirms it, and keeps what is committed."""
        if self.running:
            choice = self._leave(number)
            self._wake(keeping.set_aside(self.memory, choice))
            self.waiting.append(choice)

    def lose(self, number: int) -> None:
        """A worker is given up: it may write on where it could until it is gone."""
        worker = sorted(self.versions)[number % len(self.versions)]
        if self.lost:
            return
        self.lost.add(worker)
        for choice in [choice for choice in self.running if choice.worker == worker]:
            self.running.remove(choice)
            self._leaves(choice)
            self._become_ghost(choice, keeping.NEVER)
            choice.worker = ""
            self._wake(keeping.part(self.memory, choice, worker, len(choice.table)))
            self.waiting.append(choice)

    def bury(self, number: int) -> None:
        """A lost worker is gone, and another life begins."""
        if self.lost:
            worker = sorted(self.lost)[number % len(self.lost)]
            self.lost.remove(worker)
            del self.versions[worker]
            self.memory.forget(worker)
            self.contents.gone(worker)
            self._begin_life()

    def begin(self, number: int) -> None:
        """A worker takes its next version."""
        worker = sorted(self.versions)[number % len(self.versions)]
        if worker not in self.lost:
            self._take(worker)

    def give_up(self, number: int) -> None:
        """One that waits lets go of what it kept, or is cancelled."""
        idle = [*self.waiting, *(choice for choice, _ in self.parked.values())]
        if not idle:
            return
        choice = idle[number % len(idle)]
        if choice.handle in self.parked:
            self.parked.pop(choice.handle)[1].unpark(choice.handle)
        else:
            self.waiting.remove(choice)
        if number // 16 % 2:
            self._wake(tables.release(self.memory, choice))
            self.waiting.append(choice)
        else:
            self._drop(choice)

    def evict(self, number: int) -> None:
        wanting = ("a", "b", ANYONE)[number % 3]
        blocks = number // 3 % 8
        if blocks <= self.memory.pool.free_blocks + self.memory.shelves.evictable(wanting):
            before = self.memory.pool.free_blocks + len(self.memory.pool.freeing)
            self.memory.make_room(blocks, wanting)
            assert self.memory.pool.free_blocks + len(self.memory.pool.freeing) >= min(blocks, before)

    # What must hold

    def check(self) -> None:
        problems = audit_memory(self.state)
        assert not problems, problems

    def finish(self) -> None:
        """All end, all workers obey or are gone: nothing is held."""
        for number in range(len(self.versions)):
            self.bury(number)
        while self.running:
            self.end(0)
        while self.waiting or self.parked:
            self.give_up(0)
        for worker in self.versions:
            self._take(worker)
        self.check()
        pool = self.memory.pool
        assert not pool.freeing and pool.free_blocks + len(pool.cached) == pool.total_blocks
        self.memory.make_room(pool.total_blocks)
        assert pool.free_blocks == pool.total_blocks and not self.memory.tree.roots

    def _added(self, number: int) -> Choice:
        stem = STEMS[number % len(STEMS)]
        ids = (*stem[: 1 + number // 5 % len(stem)], *STEMS[number // 100 % len(STEMS)])
        tenant = "ab"[number // 500 % 2]
        handle = self.state.next_handle()
        sequence = Sequence(f"r{handle}", 1, "g", "m", tenant, ids, (), SamplingParams(), 1, 0)
        choice = Choice(handle, sequence, "", list(ids), sequence.params, 0.0, 1)
        self.state.choices[handle] = choice
        self.waiting.append(choice)
        return choice

    def _begin_life(self) -> None:
        self.lives += 1
        worker = f"w{self.lives}"
        self.versions[worker] = 0
        self.memory.attach(worker, 0)

    def _start(self, choice: Choice, number: int) -> None:
        hit = tables.match(self.memory, choice)
        if hit.pending is not None:
            self.waiting.remove(choice)
            hit.pending.park(choice.handle)
            self.parked[choice.handle] = (choice, hit.pending)
            return
        workers = [worker for worker in self.versions if worker not in self.lost]
        wanting = self._wanting(choice)
        fresh = self._needed(choice) - len(choice.table) - len(hit.blocks)
        if not workers or fresh + self.memory.idle_blocks(hit) > self.memory.available_blocks(wanting):
            return
        if tables.reserve(self.memory, choice, hit, fresh, wanting):
            self.waiting.remove(choice)
            self.contents.make_fresh(choice.table[len(choice.table) - fresh :])
            choice.worker, choice.joined_tokens = workers[number % len(workers)], len(choice.ids)
            self.running.append(choice)
            self._joined(choice)

    def _needed(self, choice: Choice) -> int:
        """Blocks of its table, to begin with."""
        return self.memory.blocks_for(len(choice.ids) + 1)

    def _joined(self, choice: Choice) -> None:
        """It has a table, and a worker."""

    def _drew(self, choice: Choice) -> None:
        """It has one token more."""

    def _leaves(self, choice: Choice) -> None:
        """It is about to leave its worker."""

    def _check_own(self, choice: Choice, block: int, slot: int) -> None:
        """Nobody else reads or writes what it writes."""
        assert self.memory.pool.references[block] == 1, "somebody else uses a block that is written"

    def _leave(self, number: int) -> Choice:
        choice = self.running[number % len(self.running)]
        self._take_off(choice, is_reported=bool(number // 16 % 2), is_begun=bool(number // 32 % 2))
        return choice

    def _take_off(self, choice: Choice, *, is_reported: bool, is_begun: bool) -> None:
        """Out of its worker's order by its next version, which the worker may have begun."""
        if is_reported:
            self._copy(choice)
        self.running.remove(choice)
        self._leaves(choice)
        self.versions[choice.worker] += 1
        choice.named[choice.worker] = self.versions[choice.worker]
        self._become_ghost(choice, self.versions[choice.worker])
        if is_begun:
            self._take(choice.worker)
        choice.worker = ""

    def _drop(self, choice: Choice) -> None:
        self._wake(tables.release(self.memory, choice))
        del self.state.choices[choice.handle]

    def _wake(self, handles: list[int]) -> None:
        for handle in handles:
            self.waiting.append(self.parked.pop(handle)[0])

    def _copy(self, choice: Choice) -> None:
        """What its first version copies is there before it writes; it begins where that ends, and tells so."""
        if not choice.copies:
            return
        for copy in choice.copies:
            self.contents.copy(copy.source, copy.target, copy.tokens)
        tables.copied(self.memory, choice)
        found = choice.cursor
        while found < choice.reach and self.contents.at(choice.table, found) != GARBAGE:
            found += 1
        self._wake(tables.commit(self.memory, choice, found))

    def _read(self, choice: Choice) -> None:
        """All that it takes for committed is there."""
        for position in range(choice.cursor):
            assert self.contents.at(choice.table, position) == self._expected(choice, position), (
                choice.request_id,
                position,
            )

    def _become_ghost(self, choice: Choice, version: int) -> None:
        first = choice.cursor
        if choice.copies:
            first = choice.table.index(choice.copies[0].target) * BLOCK_TOKENS
        if choice.swapped is not None:
            first = choice.swapped.first * BLOCK_TOKENS
        self.contents.let_haunt(choice.worker, version, choice.table, first)

    def _take(self, worker: str) -> None:
        version = self.versions[worker]
        self.memory.begin(worker, version)
        self.contents.begun(worker, version)

    def _expected(self, choice: Choice, position: int) -> Written:
        return choice.sequence.tenant, tuple(choice.ids[: position + 1])

    def _wanting(self, choice: Choice) -> str | None:
        return choice.sequence.tenant if self.running else ANYONE
