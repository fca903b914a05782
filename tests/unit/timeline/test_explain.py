"""The sentences of `headrace explain`, of runs made to order."""

import pytest

from libs.timeline.explain import explain
from libs.timeline.leaves import covered, decode_share, leaves_of
from tests.unit.scheduler.cell import params, prompt
from tests.unit.timeline.recorded import RecordedCell, record_turns, traced


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch) -> None:
    record_turns(monkeypatch)


def hybrid(**policy: object) -> RecordedCell:
    cell = RecordedCell(**policy)
    cell.add_worker("decode-1")
    return cell


def told(cell: RecordedCell, request_id: str) -> str:
    store = cell.store()
    trace = traced(store, request_id)
    served = trace.served
    assert served is not None
    leaves = leaves_of(store, trace)
    assert covered(leaves, served.arrived_ns, served.ended_ns) > 0.98, leaves
    assert decode_share(store, trace) > 0.95
    return "\n".join(explain(store, trace))


def test_who_waits_for_blocks_is_told_how_many_were_held() -> None:
    """The pool is full of one request; the next waits until that has ended, and one behind it as long and longer."""
    cell = hybrid(blocks=8)
    cell.submit("a", prompt(64), params(32))
    cell.submit("b", prompt(80, 300), params(4))
    cell.submit("c", prompt(16, 600), params(4))
    cell.run()
    for name in "abc":
        cell.finish(name)

    assert "Waited 660 ms for blocks: 6 of 8 blocks were held and it needed up to 6." in told(cell, "b")


def test_who_waits_behind_others_is_told_why_they_waited() -> None:
    """The oldest that waits is what holds up the rest: its reason is theirs."""
    cell = hybrid(blocks=8)
    cell.submit("a", prompt(64), params(32))
    cell.submit("b", prompt(80, 300), params(4))
    cell.submit("c", prompt(16, 600), params(4))
    cell.run()
    for name in "abc":
        cell.finish(name)

    assert "behind 1 older request because 6 of 8 blocks were held." in told(cell, "c")


def test_who_runs_at_once_waits_for_nothing() -> None:
    """No sentence of a wait, and all its steps."""
    cell = hybrid()
    cell.submit("r", prompt(40), params(5))
    cell.run()
    cell.finish("r")

    words = told(cell, "r")

    assert "aited" not in words and "ueued" not in words
    assert "Prefilled in one chunk of 40 tokens on decode-1 (20 ms alone)." in words
    assert "Decoded in 4 steps on decode-1 alone (80 ms, 20 ms a step)." in words


def test_a_prompt_whose_share_of_the_budget_went_to_others_is_told_so() -> None:
    """Three prompts, one budget: the youngest begins when the oldest is done."""
    cell = hybrid(max_chunk_tokens=64)
    requests = {"a": prompt(60, 100), "b": prompt(60, 300), "c": prompt(40, 500)}
    cell.submit_together({name: (ids, params(4)) for name, ids in requests.items()})
    cell.run()
    for name in requests:
        cell.finish(name)

    words = told(cell, "c")

    assert "because the chunk budget of a step went to others." in words
    assert "Of its time there it waited 20 ms" in words


def test_the_loss_of_a_worker_is_told_with_its_name_and_the_time_it_cost() -> None:
    """From the last step that was heard of to the decision that it goes on elsewhere."""
    cell = hybrid()
    cell.submit("r", prompt(40), params(12))
    first = next(iter(cell.workers.values()))
    cell.run(until=lambda: len(cell.choice("r").ids) >= 45)
    cell.close_link(first)
    cell.pass_while_alive(4.0)
    cell.die(first)
    cell.add_worker("decode-1+1")
    cell.run()
    cell.finish("r")

    words = told(cell, "r")

    assert "decode-1 was lost while it computed it: 1,000 ms until it could go on." in words
    assert "In steps of decode-1 for 80 ms more: it reported them, and died." in words
    assert "on decode-1+1" in words


def test_a_hand_over_names_both_workers() -> None:
    """The prompt on one, the answer on the other, in the same blocks."""
    cell = RecordedCell(role="disaggregated")
    cell.add_worker("prefill-1", "prefill")
    cell.add_worker("decode-1", "decode")
    cell.submit("r", prompt(40), params(5))
    cell.run()
    cell.finish("r")

    words = told(cell, "r")

    assert "Prefilled in one chunk of 40 tokens on prefill-1" in words
    assert "Decoded in 4 steps on decode-1" in words


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"preemption": "recompute"}, "its tokens are kept, and computed again: no host tier had room for them."),
        ({"preemption": "swap", "host_blocks": 16}, "rested in the host tier: a swap was put at "),
        ({"preemption": "cost", "host_blocks": 16}, " ms, computing again at "),
    ],
)
def test_a_preempted_request_is_told_that_it_gave_way_and_how(changes: dict[str, object], why: str) -> None:
    """Its blocks went to an older one, in the way that was asked for, or cost less."""
    cell = hybrid(blocks=12, **changes)
    for name, first in (("a", 100), ("b", 300), ("c", 500)):
        cell.submit(name, prompt(20, first), params(60))
    cell.run()
    for name in "abc":
        cell.finish(name)

    words = told(cell, "c")
    assert "Gave its blocks to an older request and waited" in words and why in words
