"""Rows: who advances, who waits and says so, how chunks run, and how sequences end."""

import pytest

from libs.contracts.messages import BlockGrant, Chunk, RowResult, RowWait, SamplingParams
from tests.fakes.engine import EOS_IDS, VOCAB_SIZE, expected
from tests.unit.worker.orders import PARAMS, Stepper, ids_of, prompt, resident


def test_a_prompt_runs_by_chunks_and_samples_with_the_last() -> None:
    """Chunks before the last commit only; the last one draws position 0, and then it advances by itself."""
    worker = Stepper()
    first = worker.order(added=[resident(1, prompt(20), [4, 5])], chunks=[Chunk(1, 12)])
    second = worker.order(chunks=[Chunk(1, 12)])

    assert first is not None and second is not None
    assert (first.rows[0].cursor, first.rows[0].ids, first.batch_tokens) == (12, (), 12)
    assert (second.rows[0].cursor, second.rows[0].position, second.batch_tokens) == (20, 0, 8)
    assert ids_of([*second.rows, *worker.run()]) == expected(prompt(20), PARAMS)[0]


@pytest.mark.parametrize("ids", [(*prompt(19), VOCAB_SIZE), (VOCAB_SIZE,)])
def test_an_id_that_the_model_does_not_have_ends_its_sequence_alone(ids: tuple[int, ...]) -> None:
    """It is never computed, and its end is told at once; who came with it is served."""
    worker = Stepper()
    result = worker.order(
        added=[resident(1, ids, [4, 5]), resident(2, prompt(3), [6])], chunks=[Chunk(1, 20), Chunk(2, 3)]
    )
    assert result is not None and [(row.sequence, row.end, row.ids, row.cursor) for row in result.found] == [
        (1, "error", (), 0)
    ]
    assert [row.sequence for row in result.rows] == [2]
    assert ids_of([*result.rows, *worker.run()], 2) == expected(prompt(3), PARAMS)[0]


def test_without_a_chunk_a_prompt_does_not_move() -> None:
    """Only a resident with one token to commit advances by itself."""
    worker = Stepper()

    assert worker.order(added=[resident(1, prompt(20), [4, 5])]) is None


def test_a_hand_over_goes_on_at_the_next_position() -> None:
    """K = c + 1: the first token came from the other worker, its KV is written here, position 1 is drawn here."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(20), [4, 5], until=1)], chunks=[Chunk(1, 20)])
    worker.order(removed=[1])
    ids = expected(prompt(20), PARAMS)[0]

    result = worker.order(added=[resident(2, (*prompt(20), ids[0]), [4, 5], prompt_tokens=20, cursor=20)])

    assert result is not None
    assert (result.rows[0].cursor, result.rows[0].position, result.rows[0].ids) == (21, 1, ids[1:2])
    assert ids_of([*result.rows, *worker.run()], 2) == ids[1:]


def test_a_resumed_sequence_is_recomputed_to_the_same_tokens() -> None:
    """Preempted after some tokens, all known ids are its prompt now, and its positions go on."""
    ids = expected(prompt(20), PARAMS)[0]
    worker = Stepper()
    resumed = resident(1, (*prompt(20), *ids[:3]), [4, 5], prompt_tokens=20)

    first = worker.order(added=[resumed], chunks=[Chunk(1, 23)])

    assert first is not None and first.rows[0].position == 3
    assert ids_of([*first.rows, *worker.run()]) == ids[3:]


def test_chunk_items_of_absent_and_finished_rows_do_nothing() -> None:
    """An item may cross an end on the wire."""
    worker = Stepper()
    short = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    worker.order(added=[resident(1, prompt(3), [4], params=short)], chunks=[Chunk(1, 3)])

    assert worker.order(chunks=[Chunk(1, 8), Chunk(77, 8)]) is None


def test_a_chunk_item_for_a_row_that_advances_by_itself_adds_nothing() -> None:
    """One row a step."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)])

    result = worker.order(chunks=[Chunk(1, 8)])

    assert result is not None and [row.cursor for row in result.rows] == [4]


def test_a_chunk_item_runs_once() -> None:
    """At the step of its version; the rest of the prompt waits for the next item."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(20), [4, 5])], chunks=[Chunk(1, 5)])

    assert worker.step() is None


def test_two_items_of_one_sequence_are_one_row() -> None:
    """Their tokens add up."""
    result = Stepper().order(added=[resident(1, prompt(20), [4, 5])], chunks=[Chunk(1, 4), Chunk(1, 5)])

    assert result is not None and [row.cursor for row in result.rows] == [9]


def test_chunks_are_cut_to_the_batch_and_decoding_rows_come_first() -> None:
    """A chunk item says "at most": the engine's batch has a size, and nobody's stream waits for a prompt."""
    worker = Stepper(max_batch_tokens=10)
    worker.order(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)])

    result = worker.order(
        added=[resident(2, prompt(7, 200), [5]), resident(3, prompt(7, 300), [6])], chunks=[Chunk(2, 7), Chunk(3, 7)]
    )

    assert result is not None and result.batch_tokens == 10
    assert [(row.sequence, row.cursor) for row in result.rows] == [(1, 4), (2, 7), (3, 2)]


def test_a_chunk_is_cut_to_the_grant() -> None:
    """It writes into granted slots only, and does not sample before its end."""
    result = Stepper().order(added=[resident(1, prompt(20), [4])], chunks=[Chunk(1, 20)])

    assert result is not None and (result.rows[0].cursor, result.rows[0].ids) == (16, ())


def test_a_row_out_of_grant_says_so_once_and_goes_on_when_granted() -> None:
    """With the token that used the last slot; its wait is timed here, and told when it ends."""
    worker = Stepper()
    first = worker.order(added=[resident(1, prompt(15), [4])], chunks=[Chunk(1, 15)])
    last = worker.step()
    assert first is not None and last is not None
    assert (first.waits, last.waits) == ((), (RowWait(1, 1, "out_of_grant", 0),))
    assert worker.step() is None
    worker.now_ns += 5000

    result = worker.order(grants=[BlockGrant(1, (9,))])

    assert result is not None
    assert result.waits == (RowWait(1, 1, "out_of_grant", 5000),)
    assert [row.cursor for row in result.rows] == [17]


def test_the_wait_of_a_removed_row_ends_with_it() -> None:
    """Every wait that began is told to end."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(16), [4])], chunks=[Chunk(1, 16)])
    worker.now_ns += 70

    result = worker.order(removed=[1])

    assert result is not None and result.waits == (RowWait(1, 1, "out_of_grant", 70),)


def test_a_row_above_unwritten_slots_is_a_no_op_and_says_so() -> None:
    """Reading them would read another sequence's tokens; it goes on when they are filled."""
    worker = Stepper()
    result = worker.order(added=[resident(1, prompt(6), [4], cursor=5)])
    assert result is not None and (result.rows, result.waits) == ((), (RowWait(1, 1, "fill_behind", 0),))
    assert worker.step() is None
    worker.pool.fill_counts_N[4] = 5

    after = worker.step()

    assert after is not None
    assert (len(after.rows), [wait.reason for wait in after.waits]) == (1, ["fill_behind"])


@pytest.mark.parametrize("hole", [4, 5, 6])
def test_every_block_below_the_cursor_must_be_filled(hole: int) -> None:
    """A hole anywhere is one, not only in the last block."""
    worker = Stepper()
    for block, fill in ((4, 16), (5, 16), (6, 3)):
        worker.pool.fill_counts_N[block] = fill - (block == hole)

    result = worker.order(added=[resident(1, prompt(36), [4, 5, 6], cursor=35)])

    assert result is not None and result.rows == ()


def test_at_until_a_resident_stops_by_itself() -> None:
    """The report confirms the removal, and nothing advances any more."""
    worker = Stepper()
    result = worker.order(added=[resident(1, prompt(3), [4], until=1)], chunks=[Chunk(1, 3)])

    assert result is not None
    assert (result.rows[0].at_until, result.rows[0].end) == (True, "")
    assert worker.step() is None


def test_max_tokens_end_by_length() -> None:
    """The last token is reported with the end, and the row stays as it is until removed."""
    rows = _run(PARAMS)

    assert [row.end for row in rows] == [""] * 7 + ["length"]
    assert [row.at_until for row in rows] == [False] * 7 + [True]


def test_an_end_of_sequence_id_ends_by_stop_and_counts() -> None:
    """The token that ended it is reported, unlike any after it."""
    params = SamplingParams(temperature=0, max_tokens=80)
    first = next(first for first in range(100, 200) if expected(prompt(3, first), params)[1] == "stop")

    rows = _run(params, ids=prompt(3, first))

    assert (ids_of(rows), rows[-1].end) == (expected(prompt(3, first), params)[0], "stop")
    assert ids_of(rows)[-1] in EOS_IDS


def test_a_stop_id_ends_even_when_the_end_of_sequence_is_ignored() -> None:
    """Each is asked for on its own."""
    third = expected(prompt(3), PARAMS)[0][2]

    rows = _run(SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, stop_token_ids=(third,)))

    assert (len(rows), rows[-1].end) == (3, "stop")


def test_ending_ids_cannot_be_drawn_before_min_tokens() -> None:
    """They are masked, so the stream differs from one that would have stopped; afterwards they end it."""
    third = expected(prompt(3), PARAMS)[0][2]
    params = SamplingParams(temperature=0, max_tokens=8, min_tokens=4, ignore_eos=True, stop_token_ids=(third,))

    rows = _run(params)

    assert ids_of(rows) == expected(prompt(3), params)[0]
    assert len(rows) > 3 and ids_of(rows)[2] == (third + 1) % VOCAB_SIZE


def test_ignored_ends_of_sequence_are_not_masked() -> None:
    """With ignore_eos the id is a token like any other, before min_tokens too."""
    worker = Stepper()
    params = SamplingParams(temperature=0, max_tokens=8, min_tokens=8, ignore_eos=True)
    worker.residents.offer(worker.orders.delta(added=[resident(1, prompt(1), [4], params=params)]))
    worker.take()

    step = worker.residents.rows_for_step(0)

    assert step is not None and step.rows[0].sample is not None
    assert step.rows[0].sample.banned_ids == ()


def test_logits_that_are_not_finite_end_the_sequence_without_a_token() -> None:
    """Its cursor stays where it was: what that step wrote is not committed."""
    worker = Stepper(nan_ids=frozenset({102}))

    result = worker.order(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)])

    assert result is not None
    (row,) = result.rows
    assert (row.end, row.ids, row.cursor, row.position) == ("error", (), 0, 0)
    assert worker.step() is None


def test_a_chunk_that_is_not_finite_ends_the_sequence() -> None:
    """Also before anything was to be drawn."""
    worker = Stepper(nan_ids=frozenset({101}))

    result = worker.order(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 2)])

    assert result is not None and result.rows[0].end == "error"
    assert worker.order(chunks=[Chunk(1, 2)]) is None


def test_logprobs_travel_only_when_asked_for() -> None:
    """Frames stay small."""
    asked = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, logprobs=0)

    assert [len(row.logprobs) for row in _run(asked)] == [1, 1]
    assert [len(row.logprobs) for row in _run(PARAMS)] == [0] * 8


def test_choices_of_one_seed_differ_and_equal_their_own_seeds() -> None:
    """Choice i draws as seed + i does alone."""
    params = SamplingParams(seed=2**64 - 1, max_tokens=4, ignore_eos=True)
    worker = Stepper()
    worker.order(
        added=[resident(1, prompt(3), [4], params=params, choice=1)],
        chunks=[Chunk(1, 3)],
    )

    worker.run()

    alone = SamplingParams(seed=0, max_tokens=4, ignore_eos=True)
    (held,) = worker.residents.hello().residents
    assert held.ids[3:] == expected(prompt(3), alone)[0]


def _run(params: SamplingParams, ids: tuple[int, ...] = prompt(3)) -> list[RowResult]:
    """Every row of one request from its prompt to its end."""
    worker = Stepper()
    added = resident(1, ids, range(4, 12), params=params, until=params.max_tokens)
    first = worker.order(added=[added], chunks=[Chunk(1, len(ids))])
    assert first is not None
    return [*first.rows, *worker.run()]
