"""Versions: what is taken when, what is refused, and what the worker says about it."""

from dataclasses import replace

from libs.contracts.messages import Began, BlockCopy, BlockGrant, Chunk, Resync, Until
from libs.engine.worker.step_values import Taken
from tests.fakes.engine import expected
from tests.unit.worker.orders import IDENTITY, PARAMS, Orders, Stepper, ids_of, prompt, resident


def test_nothing_is_taken_before_the_first_snapshot() -> None:
    """A delta means nothing to a worker that has no order yet: it is dropped and counted."""
    worker = Stepper()
    worker.residents.hello()

    worker.residents.offer(worker.orders.delta(added=[resident(1, prompt(3), [4], cursor=2)]))

    assert worker.step() is None
    assert worker.residents.dropped == 1


def test_each_boundary_takes_one_version() -> None:
    """Two queued versions are two boundaries, each with its own Began and its own chunk."""
    worker = Stepper()
    worker.residents.offer(worker.orders.delta(added=[resident(1, prompt(12), [4])], chunks=[Chunk(1, 5)]))
    worker.residents.offer(worker.orders.delta(chunks=[Chunk(1, 6)]))

    first, second = worker.step(), worker.step()

    assert first is not None and second is not None
    assert [(r.version, r.rows[0].cursor) for r in (first, second)] == [(2, 5), (3, 11)]


def test_began_names_the_version_that_was_taken() -> None:
    """The scheduler frees blocks by it."""
    worker = Stepper()
    worker.residents.offer(worker.orders.delta())

    taken = worker.take()

    assert isinstance(taken, Taken)
    assert taken.began == Began(IDENTITY.incarnation, 1, 2)


def test_a_version_with_nothing_to_do_has_no_step_result() -> None:
    """No rows, nothing removed, no copies: Began is all there is to say, and the worker parks."""
    assert Stepper().order() is None


def test_fresh_blocks_are_reset_and_filled_ones_are_not() -> None:
    """At an add those wholly at or above the cursor, later every grant: the partial tail is the sequence's own."""
    worker = Stepper()
    worker.residents.offer(worker.orders.delta(added=[resident(1, prompt(21), [4, 5, 6, 7], cursor=20)]))
    added = worker.take()
    worker.residents.offer(worker.orders.delta(grants=[BlockGrant(1, (9, 8))]))
    granted = worker.take()

    assert isinstance(added, Taken) and added.resets == (6, 7)
    assert isinstance(granted, Taken) and granted.resets == (9, 8)


def test_a_cursor_on_a_block_boundary_leaves_the_next_block_fresh() -> None:
    """A full block below the cursor is read-only, the one after it is new."""
    worker = Stepper()
    worker.residents.offer(worker.orders.delta(added=[resident(1, prompt(17), [4, 5], cursor=16)]))

    taken = worker.take()

    assert isinstance(taken, Taken) and taken.resets == (5,)


def test_copies_are_done_before_the_step_and_reported() -> None:
    """A full-prefix hit copies all but the last token into a fresh block and goes on from there."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(16), [4, 5], until=1)], chunks=[Chunk(1, 16)])

    hit = resident(2, prompt(16), [6, 7], cursor=15)
    result = worker.order(added=[hit], copies=[BlockCopy(4, 6, 15)])

    assert result is not None and result.copies_done == 1
    assert ids_of([*result.rows, *worker.run()], 2) == expected(prompt(16), PARAMS)[0]


def test_copies_without_rows_are_followed_by_a_step_result() -> None:
    """The blocks of a copy are held until it is reported done."""
    result = Stepper().order(copies=[BlockCopy(4, 6, 3)])

    assert result is not None
    assert (result.copies_done, result.rows, result.batch_tokens, result.step_number) == (1, (), 0, 1)


def test_a_removal_reports_the_last_cursor() -> None:
    """It confirms the removal, also when nothing else may advance."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)])
    worker.step()

    result = worker.order(removed=[1])

    assert result is not None and result.rows == ()
    (removed,) = result.removed
    assert (removed.sequence, removed.epoch, removed.cursor, removed.position, removed.ids) == (1, 1, 4, 2, ())
    assert worker.step() is None


def test_a_wrong_hash_asks_for_a_snapshot_and_the_residents_step_on() -> None:
    """Nothing of the wrong version is carried out, later deltas are dropped, and the stream does not stop."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)])
    wrong = replace(worker.orders.delta(removed=[1], copies=[BlockCopy(4, 9, 2)]), order_hash=b"x" * 16)
    worker.residents.offer(wrong)

    answer = worker.take()
    worker.residents.offer(worker.orders.delta())

    assert answer == Resync(IDENTITY.incarnation, 1, 2)
    assert len(worker.run()) == PARAMS.max_tokens - 1
    assert worker.residents.dropped == 1
    assert worker.pool.fill_counts_N[9] == 0


def test_a_gap_in_the_versions_asks_for_a_snapshot() -> None:
    """A version whose predecessor never came cannot be judged."""
    worker = Stepper()
    worker.orders.delta()
    worker.residents.offer(worker.orders.delta())

    assert worker.take() == Resync(IDENTITY.incarnation, 1, 1)


def test_a_delta_for_an_unknown_sequence_asks_for_a_snapshot() -> None:
    """Removing what is not there means that the two ends disagree."""
    worker = Stepper()
    delta = worker.orders.delta()
    worker.residents.offer(replace(delta, removed=(7,)))

    assert worker.take() == Resync(IDENTITY.incarnation, 1, 1)


def test_a_repeated_version_is_dropped() -> None:
    """A doubled message is no gap."""
    worker = Stepper()
    delta = worker.orders.delta()
    worker.residents.offer(delta)
    worker.residents.offer(delta)

    assert isinstance(worker.take(), Taken)
    assert worker.take() is None
    assert worker.residents.dropped == 1


def test_a_lower_term_is_dropped() -> None:
    """A scheduler that thaws after its successor took over is not obeyed."""
    worker = Stepper()
    worker.residents.offer(Orders(term=2).snapshot(version=2))
    worker.take()
    worker.orders.delta()
    worker.residents.offer(worker.orders.delta())  # version 3 of term 1, where version 3 of term 2 is due

    assert worker.take() is None
    assert worker.residents.dropped == 1


def test_a_delta_of_a_term_without_its_snapshot_is_refused() -> None:
    """A term opens with a Snapshot; the Resync bears the new term, for the new scheduler drops older ones."""
    worker = Stepper()
    worker.residents.offer(replace(worker.orders.delta(), term=5))

    assert worker.take() == Resync(IDENTITY.incarnation, 5, 1)


def test_hello_tells_everything_and_voids_untaken_versions() -> None:
    """A new scheduler learns all known ids, cursors, tables and the version that was really taken."""
    worker = Stepper()
    first = worker.order(added=[resident(1, prompt(3), [4, 5])], chunks=[Chunk(1, 3)])
    worker.residents.offer(worker.orders.delta(removed=[1]))

    hello = worker.residents.hello()

    assert first is not None
    assert (hello.term, hello.version, hello.step_number) == (1, 2, 1)
    (held,) = hello.residents
    assert (held.request_id, held.ids, held.cursor, held.prompt_tokens) == (
        "r1",
        (*prompt(3), *first.rows[0].ids),
        3,
        3,
    )
    assert (held.block_table, held.end) == ((4, 5), "")
    assert worker.take() is None


def test_a_snapshot_keeps_what_goes_on_and_drops_the_rest() -> None:
    """The answer to Resync: kept residents know more than it says, grants in it are fresh, the dropped is confirmed."""
    worker = Stepper()
    stays, goes = resident(1, prompt(3), [4]), resident(2, prompt(3, 200), [5])
    worker.order(added=[stays, goes], chunks=[Chunk(1, 3), Chunk(2, 3)])
    before = [worker.step() for _ in range(2)]
    comes = resident(3, prompt(4, 300), [7])

    worker.residents.offer(worker.orders.snapshot(replace(stays, block_table=(4, 6)), comes))
    taken = worker.take()
    report = worker.advance()

    assert all(before) and isinstance(taken, Taken) and report is not None
    assert taken.resets == (6, 7)
    assert [r.request_id for r in (*taken.added, *taken.removed)] == ["r3", "r2"]
    assert [(row.sequence, row.cursor, row.position) for row in report.result.rows] == [(1, 6, 3)]
    assert [(row.sequence, row.cursor) for row in report.result.removed] == [(2, 5)]


def test_a_snapshot_voids_what_is_queued() -> None:
    """It is the whole order: a version from before it is not taken any more."""
    worker = Stepper()
    worker.residents.offer(worker.orders.delta(added=[resident(1, prompt(3), [4])]))
    worker.residents.offer(worker.orders.snapshot())

    taken = worker.take()

    assert isinstance(taken, Taken) and (taken.began.version, taken.removed) == (3, ())
    assert worker.take() is None


def test_a_snapshot_sets_until_anew() -> None:
    """The change may have been in the delta that was lost."""
    worker = Stepper()
    guest = resident(1, prompt(3), [4], until=1)
    worker.order(added=[guest], chunks=[Chunk(1, 3)])

    worker.residents.offer(worker.orders.snapshot(replace(guest, until=2)))

    assert [row.position for row in worker.run()] == [1]


def test_a_new_term_renames_what_it_keeps_and_hears_nothing_of_the_rest() -> None:
    """Handles belong to a term: the old number of a dropped sequence may already mean another one."""
    worker = Stepper()
    kept = resident(1, prompt(3), [4])
    worker.order(added=[kept, resident(2, prompt(3), [5])], chunks=[Chunk(1, 3), Chunk(2, 3)])
    worker.residents.offer(Orders(term=2).snapshot(replace(kept, sequence=2), version=9))

    result = worker.step()

    assert result is not None
    assert (result.term, result.version, result.removed) == (2, 9, ())
    assert [(row.sequence, row.cursor) for row in result.rows] == [(2, 4)]


def test_a_snapshot_with_another_table_replaces_the_resident() -> None:
    """What the worker wrote elsewhere is worth nothing: it goes on from the snapshot's cursor in the new blocks."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)])
    worker.residents.offer(worker.orders.snapshot(resident(1, prompt(3), [9])))

    taken = worker.take()

    assert isinstance(taken, Taken)
    assert len(taken.added) == len(taken.removed) == 1
    assert taken.resets == (9,)


def test_a_new_epoch_is_another_resident() -> None:
    """The attempt before it is over, whatever it knew."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(3), [4])], chunks=[Chunk(1, 3)])
    worker.residents.offer(worker.orders.snapshot(resident(1, prompt(3), [4], epoch=2)))

    taken = worker.take()

    assert isinstance(taken, Taken) and [r.epoch for r in taken.added] == [2]


def test_raising_until_lets_a_stopped_resident_go_on() -> None:
    """A prompt shared by choices stops after its first token until its siblings are set up."""
    worker = Stepper()
    worker.order(added=[resident(1, prompt(3), [4], until=1)], chunks=[Chunk(1, 3)])
    assert worker.step() is None

    result = worker.order(untils=[Until(1, 3)])

    assert result is not None and result.rows[0].position == 1
    assert len(worker.run()) == 1
