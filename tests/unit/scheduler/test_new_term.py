"""A term opens: who may still act for the older one is found, and no request is computed twice for nothing."""

import pytest

from libs.contracts.messages import Finished, Gone
from services.scheduler.events import AskHost, KillWorker, Listed
from services.scheduler.state import DECODE, PREFILL
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell
from tests.unit.scheduler.succession import EXPECTED, PROMPT, SAMPLING, succeeded, take_over


def test_a_new_term_goes_on_from_what_the_gateway_holds() -> None:
    """Without the worker that had it: above the epoch of the gateway, with the tokens that are known."""
    cell, worker = succeeded()
    del cell.workers[worker.incarnation]
    other = cell.add_worker("decode-2", DECODE)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    assert cell.choice("r").generated == 12
    cell.run()
    assert tuple(cell.gateway.held["r"].ids) == cell.log("r") == EXPECTED
    assert cell.gateway.held["r"].epoch == 2
    assert other.steps < 12 + 1 + len(EXPECTED), "it drew no token again"


def test_what_a_worker_computes_goes_on_where_it_is() -> None:
    """Same epoch, same blocks, no token and no KV computed again, whichever comes first: Hello or the sequence."""
    for hello_first in (True, False):
        cell, worker = succeeded()
        steps = worker.steps
        if hello_first:
            cell.attach(worker)
        cell.submit("r", PROMPT, SAMPLING, is_older=True)
        if not hello_first:
            cell.attach(worker)
        assert cell.choice("r").worker == worker.incarnation
        cell.run()
        assert cell.log("r") == tuple(cell.gateway.held["r"].ids) == EXPECTED
        assert cell.gateway.held["r"].epoch == 1
        assert worker.steps == steps + len(EXPECTED) - 12 + 1, "the last one confirms the removal"
        assert cell.state.counts["adopted_sequences"] == 1
        assert cell.deliver("r") and cell.is_clean


def test_it_steps_on_until_the_term_opens() -> None:
    """The host has not answered yet; what was drawn meanwhile is told with the first result."""
    cell, worker = succeeded()
    cell.host_answers = False
    cell.attach(worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    before = len(cell.gateway.held["r"].ids)
    for _ in range(9):
        cell.step(worker)
    assert len(cell.gateway.held["r"].ids) == before + 9
    assert cell.choice("r").reason.value == "unknown_workers" and not cell.sent
    cell.host_answers = True
    cell.turn()
    cell.run()
    assert cell.log("r") == EXPECTED and cell.gateway.held["r"].epoch == 1
    assert cell.state.counts["exactness_violation"] == 0


def test_who_shares_blocks_goes_on_sharing_them() -> None:
    """Two sequences over one prefix, and a third that finds it in the tree of the new term."""
    old = Cell()
    worker = old.add_worker("decode-1", DECODE)
    for name in ("a", "b"):
        old.submit(name, PROMPT, SAMPLING)
        old.run(lambda name=name: old.choice(name).generated == 3)  # type: ignore[misc]
    shared = set(old.choice("a").table) & set(old.choice("b").table)
    new = Cell(term=2)
    take_over(new, old)
    new.workers[worker.incarnation] = worker
    worker.detach()
    new.attach(worker)
    for name in ("a", "b"):
        new.submit(name, PROMPT, SAMPLING, is_older=True)
    assert len(shared) == 2 and shared == set(new.choice("a").table) & set(new.choice("b").table)
    new.submit("c", PROMPT, SAMPLING)
    new.run()
    assert shared <= new.state.memory.tree.runs.keys()
    assert new.choice("c").cached_tokens == 32
    for name in ("a", "b", "c"):
        assert new.log(name) == EXPECTED
        new.deliver(name)
    assert new.is_clean


@pytest.mark.parametrize("generated", [0, 1, 5])
def test_a_prompt_on_a_worker_of_its_own_goes_on(generated: int) -> None:
    """In the middle of it, stopped at its first token, or handed over: both workers may tell of it."""
    old = Cell(role="disaggregated", max_chunk_tokens=16)
    workers = [old.add_worker("prefill-1", PREFILL), old.add_worker("decode-1", DECODE)]
    old.submit("r", PROMPT, SAMPLING)
    old.run(lambda: old.choice("r").cursor > 0)
    while old.choice("r").generated < generated:
        old.step(workers[old.choice("r").generated > 0])
    new = Cell(term=2, role="disaggregated", max_chunk_tokens=16)
    take_over(new, old)
    for worker in workers:
        new.workers[worker.incarnation] = worker
        worker.detach()
    for worker in workers:
        new.attach(worker)
    new.submit("r", PROMPT, SAMPLING, is_older=True)
    new.run()
    assert new.log("r") == tuple(new.gateway.held["r"].ids) == EXPECTED
    assert new.gateway.held["r"].epoch == 1 and new.state.counts["recomputed_tokens"] == 0
    assert new.deliver("r") and new.is_clean


def test_an_end_that_nobody_heard_of_is_told() -> None:
    """It came while no scheduler was there, and its frame was lost."""
    cell, worker = succeeded()
    for _ in EXPECTED:
        worker.boundary()
    assert cell.gateway.held["r"].end == "length"
    cell.gateway.held["r"].end = ""
    del cell.gateway.held["r"].ids[-3:]
    cell.attach(worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.run()
    assert [told.total for told in cell.told if isinstance(told, Finished)] == [len(EXPECTED)]
    assert cell.log("r") == EXPECTED


def test_an_attempt_that_was_taken_back_is_not_gone_on_with() -> None:
    """The gateway listens to a later one: the new term goes above it."""
    cell, worker = succeeded()
    cell.gateway.held["r"].epoch = 3
    cell.attach(worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.run()
    assert cell.gateway.held["r"].epoch == 4 and cell.log("r") == EXPECTED
    assert cell.state.counts["adopted_sequences"] == 0


def test_what_nobody_asks_for_any_more_does_not_keep_the_term_shut() -> None:
    """A worker tells of a sequence whose message has left the queue."""
    cell, worker = succeeded()
    cell.attach(worker)
    cell.submit("new", PROMPT, SAMPLING)
    cell.run()
    assert not cell.choice("new").worker
    cell.pass_while_alive(1.0)
    cell.run()
    assert cell.log("new") == EXPECTED
    cell.deliver("new")
    assert cell.is_clean


@pytest.mark.parametrize("told_first", [True, False])
def test_what_its_gateway_has_settled_does_not_keep_the_term_shut(told_first: bool) -> None:
    """A stop string ended it, which its worker does not know: before or after the worker told of it."""
    cell, worker = succeeded()
    cell.gateway.held["r"].end = "stop"
    if told_first:
        cell.attach(worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    if not told_first:
        cell.attach(worker)
    assert cell.acked == ["r"] and cell.state.is_open
    cell.run()
    assert cell.is_clean


def test_deaths_are_remembered_across_terms() -> None:
    """By the gateway, which the scheduler told."""
    cell, worker = succeeded()
    cell.gateway.held["r"].deaths, cell.gateway.held["r"].died_at = 2, 60
    cell.attach(worker)
    other = cell.add_worker("decode-2", DECODE)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    assert cell.choice("r").deaths == 2
    cell.run(lambda: bool(cell.choice("r").worker))
    assert cell.state.workers[cell.choice("r").worker].isolates
    cell.run()
    assert cell.log("r") == EXPECTED and other.versions


def test_what_the_gateway_has_whole_or_not_at_all_is_acknowledged() -> None:
    """Nothing is computed for either."""
    cell, _ = succeeded()
    cell.gateway.held["r"].end = "stop"
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.gateway.close("gone")
    arrival = cell.arrival("gone", PROMPT, SAMPLING, is_older=True)
    cell.gateway.close("gone")
    cell.turn(arrival)
    assert cell.acked == ["r", "gone"] and not cell.state.choices


def test_a_new_request_is_not_asked_about() -> None:
    """Nobody can have computed it."""
    cell = Cell(term=2)
    cell.add_worker("decode-1", DECODE)
    cell.gateway_answers = False
    cell.submit("r", PROMPT, SAMPLING)
    cell.run()
    assert cell.log("r") == EXPECTED


def test_nothing_is_granted_before_all_workers_of_the_host_are_known() -> None:
    """One that says Hello in time is welcome; one that does not is ended after a second."""
    cell, worker = succeeded()
    cell.host_answers = False
    cell.attach(worker)
    cell.submit("r", PROMPT, SAMPLING, is_older=True)
    cell.run()
    assert cell.host_asks == [AskHost("host")]
    assert cell.choice("r").reason.value == "unknown_workers"

    cell.turn(Listed("host", (worker.incarnation, "late", "frozen")))
    cell.run()
    late = FakeWorker("late", DECODE, cell.pool)
    late.identity = late.residents._identity = late.residents._identity.__class__(
        **{name: getattr(late.identity, name) for name in late.identity.__slots__} | {"incarnation": "late"}
    )
    cell.workers["late"] = late
    cell.attach(late)
    cell.pass_while_alive(0.5)
    assert cell.killed == []
    cell.pass_while_alive(0.5)
    assert cell.killed == [KillWorker("host", "frozen")]
    assert not cell.choice("r").worker
    cell.turn(Gone("frozen"))
    assert cell.choice("r").worker
    cell.run()
    assert cell.log("r") == EXPECTED


def test_workers_that_are_still_starting_are_not_ended() -> None:
    """As long as nobody has obeyed an earlier term, one that has marked its use of the pool has time to say Hello."""
    cell = Cell()
    cell.host_answers = False
    worker = cell.add_worker("decode-1", DECODE)
    cell.run()
    cell.turn(Listed("host", (worker.incarnation, "starting")))
    cell.pass_while_alive(9.5)
    assert cell.killed == []
    cell.pass_while_alive(0.5)
    assert cell.killed == [KillWorker("host", "starting")]


def test_a_host_is_asked_once_a_term() -> None:
    """Whichever term it is: that no other is known does not mean that there was none."""
    cell = Cell()
    cell.host_answers = False
    for name in ("decode-1", "decode-2"):
        cell.add_worker(name, DECODE)
    assert cell.host_asks == [AskHost("host")]
