"""When the pool is too small for all: waiting in line, shrinking grants, preempting the youngest."""

from libs.contracts.messages import Delta
from services.scheduler.reasons import Reason
from tests.fakes.engine import expected
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt


def finish_all(cell: Cell, requests: dict[str, tuple[tuple[int, ...], int]]) -> None:
    """Every request ends with the tokens it must have, and nothing is left held."""
    cell.run()
    for name, (ids, max_tokens) in requests.items():
        assert cell.log(name) == expected(ids, params(max_tokens))[0], name
        cell.deliver(name)
    assert cell.is_clean


def test_a_long_prompt_is_not_overtaken() -> None:
    """The first that does not fit stops the rest, though they would."""
    cell = hybrid(blocks=8)
    requests = {"a": (prompt(60), 40), "big": (prompt(100, 300), 4), "small": (prompt(5, 500), 4)}
    for name, (ids, max_tokens) in requests.items():
        cell.submit(name, ids, params(max_tokens))
    assert [cell.choice(name).reason for name in requests] == [Reason.ADMITTED, Reason.NO_BLOCKS, Reason.BEHIND_OLDER]
    finish_all(cell, requests)
    assert list(cell.ordered) == ["a", "big", "small"]
    assert "no_blocks" in cell.ordered["big"]


def test_admission_leaves_a_spare_block_for_everyone_who_runs() -> None:
    """Else a newcomer would take the block that a running one needs next."""
    cell = hybrid(blocks=5)
    cell.submit("a", prompt(20), params(28))  # three blocks to its end
    cell.submit("b", prompt(10, 500), params(20))
    assert cell.choice("b").reason is Reason.ADMITTED
    cell = hybrid(blocks=4)
    cell.submit("a", prompt(20), params(28))
    cell.submit("b", prompt(10, 500), params(20))
    assert cell.choice("b").reason is Reason.NO_BLOCKS


def test_at_most_max_running_run() -> None:
    """The rest wait with that reason."""
    cell = hybrid(max_running=2)
    requests = {name: (prompt(20, first), 6) for name, first in (("a", 100), ("b", 300), ("c", 500))}
    for name, (ids, max_tokens) in requests.items():
        cell.submit(name, ids, params(max_tokens))
    assert cell.choice("c").reason is Reason.MAX_RUNNING
    assert (cell.status.running, cell.status.waiting) == (2, 1)
    finish_all(cell, requests)


def test_when_blocks_run_out_the_youngest_gives_way_and_everybody_finishes() -> None:
    """It comes back with all its tokens, in the same epoch, and its answer is the same."""
    cell = hybrid(blocks=12)
    requests = {name: (prompt(20, first), 60) for name, first in (("a", 100), ("b", 300), ("c", 500))}
    for name, (ids, max_tokens) in requests.items():
        cell.submit(name, ids, params(max_tokens))
    cell.run(lambda: cell.state.counts["preempted_recompute"] > 0)
    preempted = [name for name in requests if cell.choice(name).reason is Reason.PREEMPTED_RECOMPUTE]
    assert preempted == ["c"]
    finish_all(cell, requests)
    adds = [
        r for send in cell.sent if isinstance(send.message, Delta) for r in send.message.added if r.request_id == "c"
    ]
    assert len(adds) >= 2 and {(add.epoch, add.prompt_tokens, add.cached_tokens) for add in adds} == {(1, 20, 0)}
    assert len(adds[-1].ids) > 20
    assert all(message.request_id != "a" for message in cell.told[1:]), "the oldest ends first"


def test_one_gives_way_at_a_time() -> None:
    """Its blocks are on their way back, so the next decision need not take another's."""
    cell = hybrid(blocks=12)
    firsts = {"a": 100, "b": 300, "c": 500}
    cell.turn(*(cell.arrival(name, prompt(15, first), params(60)) for name, first in firsts.items()))
    cell.run(lambda: cell.state.counts["preempted_recompute"] > 0)
    assert {len(cell.choice(name).ids) for name in "ab"} == {len(cell.choice("c").ids)}, "all run short at once"
    assert cell.state.counts["preempted_recompute"] == 1


def test_preemption_works_across_a_hand_over() -> None:
    """A resumed sequence is computed by the prefill worker and handed over again."""
    cell = disaggregated(blocks=9)
    requests = {name: (prompt(20, first), 60) for name, first in (("a", 100), ("b", 300), ("c", 500))}
    for name, (ids, max_tokens) in requests.items():
        cell.submit(name, ids, params(max_tokens))
    finish_all(cell, requests)
    assert cell.state.counts["preempted_recompute"] > 0


def test_grants_shrink_evenly_when_the_pool_is_short() -> None:
    """150 tokens ahead would be eight blocks more for each; the three get a third of what is there."""
    cell = hybrid(blocks=20)
    requests = {name: (prompt(14, first), 114) for name, first in (("a", 100), ("b", 300), ("c", 500))}
    for name, (ids, max_tokens) in requests.items():
        cell.submit(name, ids, params(max_tokens))
    cell.run(lambda: all(cell.choice(name).generated > 2 for name in requests))
    assert [len(cell.choice(name).table) for name in requests] == [6, 6, 6]
    finish_all(cell, requests)


def test_a_grant_never_reaches_beyond_the_last_token() -> None:
    """The KV of the last token is never written, so its slot is not needed."""
    cell = hybrid()
    cell.submit("r", prompt(20), params(29))
    cell.run(lambda: cell.choice("r").generated > 20)
    assert len(cell.choice("r").table) == 3  # 20 + 29 − 1 = 48 slots


def test_a_request_that_fills_the_pool_alone_gets_to_its_end() -> None:
    """There is nobody to preempt, and no need to."""
    cell = hybrid(blocks=4)
    cell.submit("r", prompt(20), params(500))
    cell.run()
    assert cell.log("r") == expected(prompt(20), params(44))[0]
    assert cell.resend("r").end == "length"
