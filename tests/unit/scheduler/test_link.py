"""The link with a worker: Hello, versions, reuse, losing step and finding it again."""

from dataclasses import replace

import pytest

from libs.contracts.messages import Ack, Began, Delta, Hello, Leaving, Resync, Snapshot, StepResult
from services.scheduler.events import LinkClosed
from services.scheduler.state import DECODE, PREFILL
from services.scheduler.status import missing_roles
from tests.fakes.engine import expected
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt


def only(cell: Cell) -> FakeWorker:
    [worker] = cell.workers.values()
    return worker


def sent(cell: Cell, kind: type) -> list[Snapshot | Delta]:
    return [send.message for send in cell.sent if type(send.message) is kind]  # type: ignore[misc]


def test_hello_is_answered_by_a_snapshot_one_version_above() -> None:
    """A term opens without residents."""
    cell = Cell(term=3)
    worker = FakeWorker("decode-1", DECODE, cell.pool)
    worker.residents.version = 41
    cell.workers[worker.incarnation] = worker
    cell.attach(worker)
    assert sent(cell, Snapshot) == [Snapshot(3, 42, (), bytes(16))]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layout_fingerprint": b"other"}, "KV layout"),
        ({"numerics_class": "other"}, "numerics class"),
        ({"model_digest": "other"}, "model"),
        ({"pool": "other"}, "KV pool"),
        ({"block_tokens": 32}, "block size"),
        ({"block_tokens": 7}, "block_tokens"),
        ({"role": "other"}, "role"),
    ],
)
def test_a_worker_unlike_the_others_is_refused(change: dict[str, object], named: str) -> None:
    """With the reason; work and blocks never cross such a border."""
    cell = hybrid()
    hello = replace(only(cell).residents.hello(), incarnation="odd", **change)  # type: ignore[arg-type]
    cell.turn(hello)
    [refused] = cell.refused
    assert refused.incarnation == "odd" and named in refused.reason and not refused.retry
    assert len(cell.state.workers) == 1


def test_a_worker_of_a_newer_term_is_sent_away_to_look_again() -> None:
    """This scheduler's reign is over; it is not the worker's fault."""
    cell = Cell(term=3)
    worker = FakeWorker("decode-1", DECODE, cell.pool)
    cell.turn(replace(worker.residents.hello(), term=4))
    assert cell.refused[0].retry and not cell.state.workers


def test_at_most_two_versions_are_ahead_of_the_worker() -> None:
    """What changes meanwhile goes out in one version when it has begun another."""
    cell = hybrid()
    cell.run()
    for index in range(6):
        cell.submit(f"r{index}", prompt(20, 100 + 100 * index))
    assert [delta.version for delta in sent(cell, Delta)] == [2, 3]
    assert len(sent(cell, Delta)[0].added) == 1  # type: ignore[union-attr]
    cell.step(only(cell))
    assert [len(delta.added) for delta in sent(cell, Delta)] == [1, 1, 4]  # type: ignore[union-attr]


def test_blocks_are_not_used_again_before_the_worker_has_begun_without_them() -> None:
    """A cancel confirmed by the worker's own end is confirmed before its removal is begun."""
    cell = hybrid(blocks=4)
    worker = only(cell)
    cell.submit("a", prompt(20), params(2))
    cell.step(worker)  # takes the Snapshot
    cell.step(worker)
    cell.step(worker)
    assert cell.told, "the worker reported its end"
    assert cell.blocks == (2, 1, 0, 1)
    cell.submit("b", prompt(50, 500), params(2))
    assert cell.status.waiting == 1, "all four are needed, one is still freeing"
    cell.run()
    assert cell.log("b") == expected(prompt(50, 500), params(2))[0]


def test_a_worker_that_lost_step_gets_a_snapshot_and_goes_on() -> None:
    """One version above all sent; dropped chunks, copies and adds are not lost."""
    cell = hybrid(max_chunk_tokens=16)
    worker = only(cell)
    cell.submit("warm", prompt(32), params(4))
    cell.run()
    cell.lose = lambda send: isinstance(send.message, Delta)
    cell.submit("copied", prompt(32), params(30))
    cell.submit("long", prompt(90, 500), params(30))
    cell.lose = lambda send: False
    cell.cancel("warm")
    cell.submit("more", prompt(20, 300), params(30))
    last = sent(cell, Delta)[-1].version
    cell.run()
    assert cell.state.counts["resync"] == 0, "nothing that followed could reach it"
    cell.turn(Resync(worker.incarnation, 1, worker.residents.version))
    assert sent(cell, Snapshot)[-1].version == last + 1
    cell.run()
    for name, ids in (("copied", prompt(32)), ("long", prompt(90, 500)), ("more", prompt(20, 300))):
        assert cell.log(name) == expected(ids, params(30))[0], name
        cell.deliver(name)
    assert cell.is_clean


def test_the_source_of_a_lost_copy_is_held_until_the_copy_is_done() -> None:
    """A step under the Snapshot is no sign of it: the copy comes with the version after."""
    cell = hybrid()
    worker = only(cell)
    cell.submit("warm", prompt(32), params(2))
    cell.run()
    cell.submit("busy", prompt(20, 500), params(200))
    cell.run(lambda: cell.choice("busy").generated == 3)
    cell.lose = lambda send: isinstance(send.message, Delta)
    cell.submit("copied", prompt(32), params(4))
    cell.submit("other", prompt(20, 300), params(4))
    cell.lose = lambda send: False
    cell.turn(Resync(worker.incarnation, 1, worker.residents.version))
    cell.turn(*worker.boundary())
    assert cell.choice("copied").copies
    cell.run()
    assert cell.log("copied") == expected(prompt(32), params(4))[0]


def test_a_worker_that_never_heard_of_a_cancelled_request_cannot_confirm_its_removal() -> None:
    """Its Resync says so: the blocks come back then."""
    cell = hybrid()
    worker = only(cell)
    cell.run()
    cell.lose = lambda send: isinstance(send.message, Delta)
    cell.submit("r", prompt(60))
    cell.cancel("r")
    cell.lose = lambda send: False
    cell.turn(Resync(worker.incarnation, 1, worker.residents.version))
    cell.run()
    assert cell.is_clean


def test_what_moves_away_from_a_worker_that_never_heard_of_it_is_computed_whole_elsewhere() -> None:
    """Its chunk was dropped together with its place: neither counts any more."""
    cell = hybrid()
    worker = only(cell)
    cell.run()
    cell.lose = lambda send: isinstance(send.message, Delta)
    cell.submit("r", prompt(20), params(4))
    assert cell.choice("r").chunked
    cell.turn(Leaving(worker.incarnation, 1))
    cell.lose = lambda send: False
    cell.turn(Resync(worker.incarnation, 1, worker.residents.version))
    cell.add_worker("decode-2", DECODE)
    cell.run()
    assert cell.log("r") == expected(prompt(20), params(4))[0]


def test_tokens_that_only_a_removal_reports_are_logged() -> None:
    """The step in which a row was removed tells its last ones."""
    cell = hybrid()
    worker = only(cell)
    cell.submit("r", prompt(20), params(100))
    cell.run(lambda: cell.choice("r").generated == 2)
    cell.stop_at("r", 2)
    removing = worker.boundary()
    [result] = [message for message in removing if isinstance(message, StepResult)]
    cell.turn(replace(result, removed=(replace(result.removed[0], ids=(7,)),)))
    assert cell.log("r")[2:] == (7,)


def test_what_a_row_that_was_not_finite_claims_to_have_written_is_not_shared() -> None:
    """Whatever cursor it reports."""
    cell = hybrid()
    worker = only(cell)
    cell.submit("r", prompt(32), params(4))
    cell.step(worker)
    [result] = [message for message in worker.boundary() if isinstance(message, StepResult)]
    cell.turn(replace(result, rows=(replace(result.rows[0], ids=(), end="error"),)))
    assert cell.status.blocks_cached == 0


def test_residents_step_on_through_a_resync() -> None:
    """The Snapshot names them as they are; nothing is computed twice."""
    cell = hybrid()
    worker = only(cell)
    cell.submit("r", prompt(20), params(60))
    cell.run(lambda: cell.choice("r").generated == 10)
    cell.turn(Resync(worker.incarnation, 1, worker.residents.version))
    cell.run()
    assert cell.log("r") == expected(prompt(20), params(60))[0]
    assert worker.steps <= 64


@pytest.mark.parametrize("make", [hybrid, disaggregated])
def test_a_link_that_comes_back_in_time_loses_nothing(make: type[Cell]) -> None:
    """Hello, a Snapshot with all residents, and the results that were not acknowledged."""
    cell = make(max_chunk_tokens=16)
    cell.submit("r", prompt(60), params(60))
    for _ in range(40):
        for worker in cell.workers.values():
            cell.step(worker)
            worker.boundary()
            cell.close_link(worker)
            cell.now_s += 0.02
            cell.attach(worker)
        cell.alive()
    cell.run()
    assert cell.log("r") == expected(prompt(60), params(60))[0]
    assert cell.deliver("r") and cell.is_clean


def test_results_that_come_twice_or_from_another_term_are_dropped() -> None:
    """Repeat key: (incarnation, step number)."""
    cell = hybrid()
    worker = only(cell)
    cell.submit("r", prompt(20), params(9))
    results = []
    while messages := worker.boundary():
        for message in messages:
            cell.turn(message)
            results += [message] if isinstance(message, StepResult) else []
    for result in results:
        cell.turn(result, replace(result, term=9, step_number=99), Began(worker.incarnation, 9, 50))
    assert cell.state.counts["stale_step_result"] == 2 * len(results)
    assert cell.log("r") == expected(prompt(20), params(9))[0]


def test_two_reports_that_differ_are_counted_and_never_spliced() -> None:
    """The log keeps what it had."""
    cell = hybrid()
    worker = only(cell)
    cell.submit("r", prompt(20), params(9))
    cell.run(lambda: cell.choice("r").generated == 3)
    [result] = [message for message in worker.boundary() if isinstance(message, StepResult)]
    forged = replace(result, rows=(replace(result.rows[0], position=2, ids=(1, 2)),))
    cell.turn(forged)
    assert cell.state.counts["exactness_violation"] == 1
    assert cell.log("r") == expected(prompt(20), params(9))[0][:3]


def test_a_lost_worker_that_comes_back_is_fenced() -> None:
    """It was given up: its blocks may go to others any moment."""
    cell = hybrid()
    worker = only(cell)
    cell.close_link(worker)
    cell.pass_s(1.0)
    cell.attach(worker)
    assert worker.fenced


def test_nothing_is_granted_while_a_worker_may_still_act_for_an_older_term() -> None:
    """Its residents write where the old term let them, until it has begun this one's Snapshot."""
    old = hybrid()
    worker = only(old)
    old.submit("r", prompt(20), params(200))
    old.run(lambda: old.choice("r").generated == 3)

    new = Cell(term=2)
    new.pool, new.gateway = old.pool, old.gateway
    worker.detach()
    new.workers[worker.incarnation] = worker
    new.add_worker("decode-2", DECODE)
    new.run(lambda: bool(new.workers["decode-2-life"].versions))
    new.attach(worker)
    new.submit("r", prompt(20), params(200))
    assert new.choice("r").reason.value == "unknown_workers"
    new.run()
    assert new.log("r") == expected(prompt(20), params(200))[0]


def test_a_cell_is_ready_when_every_needed_role_is_there() -> None:
    """A closed link does not count."""
    cell = Cell(role="disaggregated")
    assert missing_roles(cell.state) == (DECODE, PREFILL)
    cell.add_worker("prefill-1", PREFILL)
    decode = cell.add_worker("decode-1", DECODE)
    assert missing_roles(cell.state) == ()
    cell.turn(LinkClosed(decode.incarnation))
    assert missing_roles(cell.state) == (DECODE,)
    assert cell.status.workers == ("prefill-1",)


def test_an_end_is_acknowledged_to_the_worker_at_once() -> None:
    """It need not keep the results of what is over."""
    cell = hybrid()
    cell.submit("r", prompt(20), params(5))
    cell.run()
    acks = [send.message for send in cell.sent if isinstance(send.message, Ack)]
    assert acks and acks[-1].step_number >= 5
    assert not any(isinstance(send.message, Hello) for send in cell.sent)
