"""The thread that steps: it parks, wakes, and tells things in the order in which they happened."""

import queue
import threading
from collections.abc import Iterator, Sequence

import pytest

from libs.contracts.messages import BlockCopy, Chunk
from libs.engine.rows import StepRow
from libs.engine.worker.boundary import HelloReady, HelloWanted
from libs.engine.worker.residents import Residents
from libs.engine.worker.step_thread import Crashed, Post, StepThread
from libs.engine.worker.step_values import StepReport, Taken
from tests.fakes.engine import EOS_IDS, VOCAB_SIZE, FakeEngine, FakePool, expected
from tests.unit.worker.orders import BLOCK_TOKENS, IDENTITY, PARAMS, Orders, ids_of, prompt, resident

PATIENCE_S = 5.0


class Bench:
    """A running step thread and everything it says."""

    def __init__(self) -> None:
        self.pool = FakePool(IDENTITY.pool_blocks, BLOCK_TOKENS)
        self.engine = FakeEngine(self.pool)
        self.orders = Orders()
        self.posts: queue.Queue[Post] = queue.Queue()
        residents = Residents(
            IDENTITY,
            eos_ids=EOS_IDS,
            vocab_size=VOCAB_SIZE,
            block_tokens=BLOCK_TOKENS,
            fill_counts=self.pool.fill_counts_N,
        )
        self.thread = StepThread(residents, self.engine, self.pool, self.posts.put)
        self.thread.send(self.orders.snapshot())

    def next(self) -> Post:
        return self.posts.get(timeout=PATIENCE_S)

    def report(self) -> StepReport:
        post = self.next()
        assert isinstance(post, StepReport), post
        return post

    def is_silent(self) -> bool:
        """Whether it parks: it answers a Hello, and has said nothing else before."""
        self.thread.send(HelloWanted(99))
        return isinstance(self.next(), HelloReady)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    bench.thread.start()
    assert isinstance(bench.next(), Taken)
    yield bench
    bench.thread.stop()
    assert bench.thread.join(PATIENCE_S)


def test_an_idle_worker_takes_a_version_at_once_and_parks_again(bench: Bench) -> None:
    """Began is all it says, and it says it without anything else to do."""
    bench.thread.send(bench.orders.delta())

    post = bench.next()

    assert isinstance(post, Taken) and post.began.version == 2
    assert bench.is_silent()


def test_a_chunk_waits_for_no_step_of_a_version_without_items() -> None:
    """Both are taken at one boundary, though a row could advance between them; two chunks never are."""
    bench = Bench()
    bench.thread.send(bench.orders.delta(added=[resident(1, prompt(9), [4]), resident(2, prompt(1), [5])]))
    for tokens in (4, 3):
        bench.thread.send(bench.orders.delta(chunks=[Chunk(1, tokens)]))

    bench.thread.start()
    said = [bench.next() for _ in range(6)]

    assert [type(word) for word in said] == [Taken, Taken, Taken, StepReport, Taken, StepReport]
    assert [word.result.batch_tokens for word in said if isinstance(word, StepReport)] == [5, 4]
    bench.thread.stop()
    assert bench.thread.join(PATIENCE_S)


def test_versions_that_ask_for_no_step_are_taken_one_after_the_other() -> None:
    """A worker does not park on a version that it has."""
    bench = Bench()
    bench.thread.send(bench.orders.delta())
    bench.thread.send(bench.orders.delta())

    bench.thread.start()

    assert [_version_of(bench.next()) for _ in range(3)] == [1, 2, 3]
    bench.thread.stop()
    assert bench.thread.join(PATIENCE_S)


def test_it_steps_by_itself_until_nothing_may_advance(bench: Bench) -> None:
    """One order, then a report per step without another word, then silence."""
    bench.thread.send(bench.orders.delta(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)]))

    taken = bench.next()
    rows = [row for _ in range(PARAMS.max_tokens) for row in bench.report().result.rows]

    assert isinstance(taken, Taken)
    assert ids_of(rows) == expected(prompt(3), PARAMS)[0]
    assert bench.is_silent()


def test_began_comes_before_its_step_and_its_step_result_after(bench: Bench) -> None:
    """Versions with items that arrive during a step are taken one by one at the next boundaries."""
    inside, go_on = threading.Event(), threading.Event()

    def hold(rows: Sequence[StepRow]) -> None:
        inside.set()
        assert go_on.wait(PATIENCE_S)

    bench.engine.before_step = hold
    bench.thread.send(bench.orders.delta(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)]))
    assert inside.wait(PATIENCE_S)
    for target in (8, 9):
        bench.thread.send(bench.orders.delta(copies=[BlockCopy(4, target, 2)]))
    bench.engine.before_step = lambda rows: None
    go_on.set()

    posts = [bench.next() for _ in range(6)]

    said = [(_version_of(post), type(post)) for post in posts]
    assert said == [(2, Taken), (2, StepReport), (3, Taken), (3, StepReport), (4, Taken), (4, StepReport)]


def test_resets_and_copies_come_before_the_step(bench: Bench) -> None:
    """The step of that version already reads them."""
    bench.pool.fill_counts_N[9] = 16
    bench.thread.send(bench.orders.delta(added=[resident(1, prompt(16), [4, 5], until=1)], chunks=[Chunk(1, 16)]))
    bench.next(), bench.report()
    seen: list[tuple[int, int]] = []
    bench.engine.before_step = lambda rows: seen.append((bench.pool.fill_counts_N[6], bench.pool.fill_counts_N[9]))

    bench.thread.send(
        bench.orders.delta(
            removed=[1], added=[resident(2, prompt(16), [6, 9], cursor=15, until=1)], copies=[BlockCopy(4, 6, 15)]
        )
    )
    bench.next()

    assert bench.report().result.copies_done == 1
    assert seen == [(15, 0)]


def test_hello_is_answered_at_a_boundary_in_its_place(bench: Bench) -> None:
    """What was said before it is in it, what comes after is not: a link can send it on as it is."""
    bench.thread.send(bench.orders.delta(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)]))
    bench.next()
    for _ in range(PARAMS.max_tokens):
        bench.report()

    bench.thread.send(HelloWanted(7))

    post = bench.next()
    assert isinstance(post, HelloReady) and post.session == 7
    assert (post.hello.version, post.hello.step_number) == (2, PARAMS.max_tokens)
    assert len(post.hello.residents[0].ids) == 3 + PARAMS.max_tokens


def test_an_engine_that_fails_is_the_last_word(bench: Bench) -> None:
    """The process must end: its state is not to be trusted any more."""

    def fail(rows: Sequence[StepRow]) -> None:
        raise RuntimeError("device lost")

    bench.engine.before_step = fail
    bench.thread.send(bench.orders.delta(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)]))
    bench.next()

    post = bench.next()

    assert isinstance(post, Crashed) and str(post.error) == "device lost"


def test_stopping_ends_it_after_the_step_under_way(bench: Bench) -> None:
    """Nothing more is begun, even with rows that could advance."""
    many = PARAMS.max_tokens
    bench.engine.before_step = lambda rows: bench.thread.stop()
    bench.thread.send(bench.orders.delta(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)]))
    bench.next()

    assert bench.report().result.step_number == 1 < many
    assert bench.thread.join(PATIENCE_S)
    assert bench.posts.empty()


def _version_of(post: Post) -> int:
    assert isinstance(post, Taken | StepReport)
    return post.began.version if isinstance(post, Taken) else post.result.version
