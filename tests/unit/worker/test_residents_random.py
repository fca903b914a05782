"""Whatever the orders are, the tokens are the request's: random schedules over two workers and one pool."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from libs.contracts.messages import BadWord, BlockGrant, Chunk, Resync, SamplingParams, StepResult
from tests.fakes.engine import expected
from tests.unit.worker.orders import BLOCK_TOKENS, Stepper, prompt, resident

POOL_BLOCKS = 64
PARAMS = SamplingParams(
    temperature=0.7,
    seed=5,
    max_tokens=40,
    repetition_penalty=1.1,
    frequency_penalty=0.5,
    bad_words=tuple(BadWord((first, second)) for first in range(0, 1024, 8) for second in (3, 200)),
)
CHOICES = st.sampled_from(("step", "step", "grant", "chunk", "preempt", "move", "corrupt", "snapshot"))


@dataclass
class Cell:
    """One sequence driven between two workers by somebody who owns the blocks, as a scheduler does."""

    prompt_ids: tuple[int, ...]
    workers: tuple[Stepper, Stepper] = field(default_factory=lambda: two_workers())
    free: list[int] = field(default_factory=lambda: list(range(POOL_BLOCKS)))
    table: tuple[int, ...] = ()
    log: list[int] = field(default_factory=list)
    cursor: int = 0
    end: str = ""
    at: int = 0  # the worker that holds it
    sequence: int = 1

    @property
    def worker(self) -> Stepper:
        return self.workers[self.at]

    def add(self, *, chunk: int = 0) -> None:
        """Put it on its worker, as far as it is known and committed."""
        self.sequence += 1
        guest = resident(
            self.sequence,
            (*self.prompt_ids, *self.log),
            self.table,
            prompt_tokens=len(self.prompt_ids),
            cursor=self.cursor,
            until=PARAMS.max_tokens,
            params=PARAMS,
        )
        self.hear(self.worker.order(added=[guest], chunks=[Chunk(self.sequence, chunk)] if chunk else []))

    def grant(self) -> None:
        blocks = (self.free.pop(), self.free.pop())
        self.table += blocks
        self.hear(self.worker.order(grants=[BlockGrant(self.sequence, blocks)]))

    def preempt(self) -> None:
        """Its blocks are lost, and everything is computed again elsewhere."""
        self.remove()
        self.free = [*self.table[::-1], *self.free]
        self.table, self.cursor = tuple(self.free.pop() for _ in range(2)), 0
        self.add(chunk=7)

    def move(self) -> None:
        """The other worker goes on in the same blocks."""
        self.remove()
        self.at = 1 - self.at
        self.add(chunk=3)

    def remove(self) -> None:
        result = self.worker.order(removed=[self.sequence])
        self.hear(result)
        assert result is not None and [row.cursor for row in result.removed] == [self.cursor]

    def corrupt(self) -> None:
        """A version is damaged on its way: nothing of it happens, and the whole order heals it."""
        worker = self.worker
        wrong = worker.orders.delta(grants=[BlockGrant(self.sequence, (0,))])
        worker.residents.offer(replace(wrong, order_hash=b""))
        assert isinstance(worker.take(), Resync)
        self.snapshot()

    def snapshot(self) -> None:
        guest = resident(
            self.sequence,
            self.prompt_ids,  # the scheduler may know less than the worker
            self.table,
            until=PARAMS.max_tokens,
            params=PARAMS,
        )
        self.worker.residents.offer(self.worker.orders.snapshot(guest))
        self.hear(self.worker.step())

    def hear(self, result: StepResult | None) -> None:
        for row in result.rows if result else ():
            assert row.position == len(self.log) or not row.ids
            self.log += row.ids
            self.cursor, self.end = row.cursor, row.end

    def act(self, choice: str, chunk: int) -> None:
        match choice:
            case "step":
                self.hear(self.worker.step())
            case "chunk":
                self.hear(self.worker.order(chunks=[Chunk(self.sequence, chunk)]))
            case _:
                getattr(self, choice)()


def two_workers() -> tuple[Stepper, Stepper]:
    """Both attached to one pool."""
    first = Stepper()
    return first, Stepper(pool=first.pool)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.lists(st.tuples(CHOICES, st.integers(1, 20)), max_size=25))
def test_any_schedule_yields_the_tokens_of_the_request(length: int, acts: list[tuple[str, int]]) -> None:
    """Chunk sizes, grants, preemption, hand-over and damaged orders change nothing but the time it takes."""
    cell = Cell(prompt(length))
    cell.table = (cell.free.pop(),)
    cell.add()

    for choice, chunk in acts:
        if not cell.end:
            cell.act(choice, chunk)
    while not cell.end:
        cell.grant()
        for _ in range(2 * BLOCK_TOKENS):
            cell.act("chunk", 20)

    assert (tuple(cell.log), cell.end) == expected(prompt(length), PARAMS)
