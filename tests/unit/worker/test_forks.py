"""A worker draws the first token of every choice of a request from the logits of one."""

from dataclasses import replace

from libs.contracts.messages import BlockCopy, Chunk, Fork, SamplingParams, Until
from tests.fakes.engine import expected
from tests.unit.worker.orders import Stepper, ids_of, prompt, resident

PARAMS = SamplingParams(max_tokens=8, seed=5, ignore_eos=True)
FORKS = (Fork(11, 0, 3), Fork(12, 1, 1))


def test_forks_draw_position_0_and_stop_there() -> None:
    """Their rows come before the resident's, with its cursor, and name their own sequence, choice and epoch."""
    worker = Stepper()
    one = resident(1, prompt(20), [4, 5], params=PARAMS, choice=2, until=1, forks=FORKS)
    worker.residents.offer(worker.orders.delta(added=[one], chunks=[Chunk(1, 12)]))
    worker.take()
    assert worker.advance() is not None
    worker.residents.offer(worker.orders.delta(chunks=[Chunk(1, 12)]))
    worker.take()

    report = worker.advance()

    assert report is not None and worker.advance() is None
    first = [expected(prompt(20), PARAMS, choice)[0][:1] for choice in range(3)]
    rows = report.result.rows
    assert [(row.sequence, row.epoch, row.cursor, row.position, row.at_until) for row in rows] == [
        (11, 3, 20, 0, True),
        (12, 1, 20, 0, True),
        (1, 1, 20, 0, True),
    ]
    assert [row.ids for row in rows] == first
    assert [(who.choice, who.epoch, who.request_id) for who in report.residents] == [
        (0, 3, "r1"),
        (1, 1, "r1"),
        (2, 1, "r1"),
    ]


def test_all_go_on_alone_from_the_shared_prompt() -> None:
    """The next version copies the tail for all but the one that keeps it, and raises its until."""
    worker = Stepper()
    one = resident(1, prompt(20), [4, 5], params=PARAMS, choice=2, until=1, forks=FORKS)
    result = worker.order(added=[one], chunks=[Chunk(1, 20)])
    assert result is not None
    first = {row.sequence: row.ids for row in result.rows}
    added = [
        resident(
            fork.sequence,
            (*prompt(20), *first[fork.sequence]),
            [4, 6 + fork.choice],
            params=PARAMS,
            choice=fork.choice,
            prompt_tokens=20,
            cursor=20,
        )
        for fork in FORKS
    ]

    result = worker.order(added=added, untils=[Until(1, 8)], copies=[BlockCopy(5, 6, 4), BlockCopy(5, 7, 4)])

    assert result is not None
    rows = [*result.rows, *worker.run()]
    for sequence, choice in ((11, 0), (12, 1), (1, 2)):
        assert first[sequence] + ids_of(rows, sequence) == expected(prompt(20), PARAMS, choice)[0]


def test_a_fork_ends_by_its_own_first_token() -> None:
    """An end of sequence, or the only token there is to be, is told with it; who is not finite ends with all."""
    stops = replace(PARAMS, stop_token_ids=expected(prompt(20), PARAMS, 0)[0][:1])
    for params, ends in ((stops, ["stop", "", ""]), (replace(PARAMS, max_tokens=1), ["length"] * 3)):
        worker = Stepper()
        result = worker.order(
            added=[resident(1, prompt(20), [4, 5], params=params, choice=2, until=1, forks=FORKS)],
            chunks=[Chunk(1, 20)],
        )
        assert result is not None and [row.end for row in result.rows] == ends
    worker = Stepper(nan_ids=frozenset(prompt(20)[-1:]))
    result = worker.order(
        added=[resident(1, prompt(20), [4, 5], params=PARAMS, choice=2, until=1, forks=FORKS)], chunks=[Chunk(1, 20)]
    )
    assert result is not None and [(row.end, row.ids, row.cursor) for row in result.rows] == [("error", (), 0)] * 3


def test_a_resident_that_tells_candidates_draws_nothing() -> None:
    """It commits, tells the likeliest ids, and stops; what follows is not its to say."""
    worker = Stepper()

    result = worker.order(
        added=[resident(1, prompt(20), [4, 5], params=PARAMS, until=1, candidates=6)], chunks=[Chunk(1, 20)]
    )

    assert result is not None
    (row,) = result.rows
    assert (row.ids, row.cursor, row.end, row.at_until, len(row.candidates)) == ((), 20, "", True, 6)
    assert list(row.candidates) == sorted(row.candidates, key=lambda one: (-one.logprob, one.token_id))
    assert worker.step() is None
