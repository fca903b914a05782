"""What the scheduler writes down of its decisions, in runs of a test cell."""

import pytest

from libs.contracts.trace_records import Arrived, Decided, Order, Record, Report, WorkerLost
from tests.unit.scheduler.cell import params, prompt
from tests.unit.timeline.recorded import RecordedCell, record_turns


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch) -> None:
    record_turns(monkeypatch)


def hybrid(**policy: object) -> RecordedCell:
    cell = RecordedCell(**policy)
    cell.add_worker("decode-1")
    return cell


def written(cell: RecordedCell) -> list[Record]:
    return cell.ring("scheduler").take()


def test_each_change_of_a_reason_is_written_with_what_led_to_it() -> None:
    """In order, the wait for blocks with the pool as it was, and how many wait before it."""
    cell = hybrid(blocks=8)
    cell.submit("a", prompt(64), params(32))
    cell.submit("b", prompt(80, 300), params(4))
    cell.submit("c", prompt(16, 600), params(4))
    cell.run()

    decided = [record for record in written(cell) if isinstance(record, Decided)]

    assert [record.reason for record in decided if record.request_id == "b"] == [
        "behind_older",
        "no_blocks",
        "admitted",
        "decoding",
        "stopped",
    ]
    waits = [record for record in decided if record.reason == "no_blocks" and record.request_id == "b"]
    assert [(d.held_blocks, d.total_blocks, d.needs_blocks, d.older, d.running) for d in waits] == [(6, 8, 6, 0, 1)]
    assert next(record.older for record in decided if record.request_id == "c") == 1


def test_each_order_is_written_with_whom_it_adds_its_chunks_and_its_blocks() -> None:
    """Names, not handles."""
    cell = hybrid(max_chunk_tokens=32)
    cell.submit("a", prompt(70), params(3))
    cell.run()

    records = written(cell)
    orders = [record for record in records if isinstance(record, Order)]

    assert records[0] == orders[0], "the Snapshot of a new worker"
    assert isinstance(next(record for record in records if record != orders[0]), Arrived)
    assert [order.added for order in orders if order.added] == [(("a", 0, 70),)]
    assert [order.chunks for order in orders if order.chunks] == [(("a", 32),), (("a", 32),), (("a", 6),)]
    assert orders[-1].removed == ("a",)
    assert (orders[1].held_before, orders[1].held_after) == (0, cell.pool.blocks - 64 + 5)
    assert all(order.worker == "decode-1" for order in orders)


def test_plain_steps_in_a_row_are_one_record() -> None:
    """Every step is in one, none in two; those that the scheduler acts on stand alone."""
    cell = hybrid()
    cell.submit("a", prompt(40), params(30))
    cell.run()
    cell.submit("b", prompt(40, 500), params(2))
    cell.run()

    reports = [record for record in written(cell) if isinstance(record, Report)]
    numbers = [number for report in reports for number in range(report.first, report.last + 1)]

    assert numbers == list(range(1, len(numbers) + 1))
    assert any(report.last > report.first for report in reports)
    held = [(report.held_before, report.held_after) for report in reports]
    assert any(before > after for before, after in held), "an end gives its blocks back"
    assert sum(report.batch_tokens for report in reports) == 40 + 29 + 40 + 1


def test_a_worker_that_is_given_up_is_written_down() -> None:
    """By its name: what it computed is explained by that."""
    cell = hybrid()
    cell.submit("a", prompt(40), params(30))
    worker = next(iter(cell.workers.values()))
    cell.run(until=lambda: len(cell.choice("a").ids) > 45)
    cell.close_link(worker)
    cell.pass_while_alive(4.0)

    assert "decode-1" in [record.worker for record in written(cell) if isinstance(record, WorkerLost)]


def test_a_preemption_is_written_with_what_either_way_was_put_at() -> None:
    """Nanoseconds of its worker; a wait for somebody's end as a remark of who waits."""
    cell = hybrid(blocks=12, host_blocks=16)
    for name, first in (("a", 100), ("b", 300), ("c", 500)):
        cell.submit(name, prompt(20, first), params(60))
    cell.run()

    decided = [record for record in written(cell) if isinstance(record, Decided)]

    preempted = [record for record in decided if record.reason == "preempted_swap"]
    assert preempted and all(0 < record.swap_ns < record.recompute_ns for record in preempted)
    assert all(record.swap_ns == -1 for record in decided if record.reason == "admitted")
