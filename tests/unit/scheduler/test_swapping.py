"""Preemption by swap: what travels, who resumes first, and that nothing is lost whatever ends in the middle of it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from libs.contracts.messages import Delta, Resident, Swap
from services.scheduler.choice import Phase
from services.scheduler.events import Send
from services.scheduler.reasons import Reason
from services.scheduler.state import DECODE, State
from services.scheduler.swap_cost import COST, RECOMPUTE, SWAP
from tests.fakes.engine import FakeTier, expected
from tests.fakes.worker import FakeWorker
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt
from tests.unit.scheduler.test_blocks_short import finish_all

REQUESTS = {name: (prompt(20, first), 60) for name, first in (("a", 100), ("b", 300), ("c", 500))}
HOST_BLOCKS = 16


def starved(role: Callable[..., Cell] = hybrid, **changes: object) -> Cell:
    """Three requests in a pool for two and a half of them."""
    cell = role(**{"blocks": 12, "host_blocks": HOST_BLOCKS, "preemption": SWAP, **changes})
    for name, (ids, max_tokens) in REQUESTS.items():
        cell.submit(name, ids, params(max_tokens))
    return cell


def swaps(cell: Cell) -> tuple[list[Swap], list[Swap]]:
    """(out, in) of sequences, as ordered."""
    return (
        [swap for delta in cell.deltas for swap in delta.swap_outs if swap.sequence],
        [swap for delta in cell.deltas for swap in delta.swap_ins],
    )


def last_add(cell: Cell, name: str) -> Resident:
    return [resident for delta in cell.deltas for resident in delta.added if resident.request_id == name][-1]


def others(name: str) -> dict[str, tuple[tuple[int, ...], int]]:
    return {other: request for other, request in REQUESTS.items() if other != name}


@pytest.mark.parametrize("role", [hybrid, disaggregated])
def test_a_swapped_sequence_goes_on_from_where_it_was(role: Callable[..., Cell]) -> None:
    """It leaves with all that is committed, comes back with it in one version, and computes nothing again."""
    cell = starved(role)
    cell.run(lambda: cell.state.counts["swapped_out_blocks"] > 0)
    choice, tier = cell.choice("c"), cell.state.memory.tier
    assert choice.reason is Reason.PREEMPTED_SWAP and choice in cell.state.swapped and choice.table == []
    assert choice.swapped is not None
    assert tier.held_blocks == len(choice.swapped.host_blocks) == cell.state.memory.blocks_for(choice.swapped.tokens)
    rested = choice.swapped.tokens

    finish_all(cell, REQUESTS)

    _, back = swaps(cell)
    again = last_add(cell, "c")
    assert (again.epoch, again.cursor) == (1, len(again.ids) - 1) and again.cursor >= rested
    assert back and is_free(cell)
    assert cell.state.counts["preempted_recompute"] == 0


def test_blocks_that_others_share_stay() -> None:
    """Only private blocks travel; the sequence keeps its reference on the others."""
    cell = hybrid(blocks=14, host_blocks=HOST_BLOCKS, preemption=SWAP)
    requests = {
        name: ((*prompt(32, 100), *prompt(4, first)), 80) for name, first in (("a", 300), ("b", 400), ("c", 500))
    }
    for name, (ids, max_tokens) in requests.items():
        cell.submit(name, ids, params(max_tokens))
    cell.run(lambda: cell.state.counts["swapped_out_blocks"] > 0)
    choice = cell.choice("c")

    assert choice.swapped is not None and choice.swapped.first == len(choice.table) == 2
    assert choice.table == cell.choice("a").table[:2]
    assert all(cell.state.memory.pool.references[block] == 3 for block in choice.table)
    finish_all(cell, requests)


def test_without_room_in_the_tier_it_is_computed_again() -> None:
    """And says so; nothing of the tier is taken."""
    cell = starved(host_blocks=2)
    cell.run(lambda: cell.state.counts["preempted_recompute"] > 0)

    assert cell.choice("c").reason is Reason.PREEMPTED_RECOMPUTE
    finish_all(cell, REQUESTS)
    assert swaps(cell) == ([], [])


def test_only_the_way_asked_for_is_taken() -> None:
    """Recompute alone uses no tier, whatever its room."""
    cell = starved(preemption=RECOMPUTE)
    finish_all(cell, REQUESTS)

    assert cell.state.counts["preempted_recompute"] > 0 and swaps(cell) == ([], [])


@pytest.mark.parametrize(("block_s", "way"), [(0.000001, "preempted_swap"), (2.0, "preempted_recompute")])
def test_measured_rates_decide(block_s: float, way: str) -> None:
    """A fast tier is used; one that has shown to be slower than the prefill is not."""
    cell = hybrid(blocks=12, host_blocks=HOST_BLOCKS)
    cell.state.swap_rates.report(inward=False, blocks=1, seconds=block_s)
    for name, (ids, max_tokens) in REQUESTS.items():
        cell.submit(name, ids, params(max_tokens))
    cell.run(lambda: cell.state.counts["preempted_swap"] + cell.state.counts["preempted_recompute"] > 0)

    assert cell.state.counts[way] == 1
    costs = cell.choice("c").costs
    assert costs is not None and (costs.swap_s < costs.recompute_s) == (way == "preempted_swap")
    finish_all(cell, REQUESTS)


def test_what_nobody_evicted_does_not_travel_back() -> None:
    """Its blocks stay in the cache as long as they can: only what is not there any more is brought back."""
    cell = starved()
    cell.run(lambda: cell.state.counts["swapped_out_blocks"] > 0)
    cell.cancel("a")
    cell.cancel("b")
    finish_all(cell, {"c": REQUESTS["c"]})

    assert [len(swap.blocks) for swap in swaps(cell)[1]] == [1]  # the tail, which nobody shares
    assert is_free(cell)


def test_a_tier_that_turns_out_slow_is_forsaken() -> None:
    """Where coming back costs more than computing again, that is what happens, and it says so."""
    cell = starved(preemption=COST)
    cell.state.swap_rates.report(inward=False, blocks=1, seconds=0.0001)
    cell.run(lambda: cell.state.counts["swapped_out_blocks"] > 0)
    cell.state.swap_rates.report(inward=True, blocks=1, seconds=9.0)
    cell.turn()

    assert cell.choice("c") in cell.state.queue and cell.choice("c").waited_s.keys() >= {Reason.PREEMPTED_SWAP}
    assert is_free(cell) and cell.state.counts["swaps_forsaken"] == 1
    finish_all(cell, REQUESTS)


def test_who_is_out_of_blocks_waits_where_another_ends_at_once() -> None:
    """Taking blocks from somebody costs more than the steps that are left to it."""
    cell = hybrid(blocks=6)
    cell.workers["decode-1-life"].token_s = 0.01
    requests = {"a": (prompt(20), 40), "b": (prompt(20, 300), 29)}
    for name, (ids, max_tokens) in requests.items():
        cell.submit(name, ids, params(max_tokens))
    cell.run()

    assert cell.state.counts["preemption_waits"] == 1 and cell.state.counts["preempted_recompute"] == 0
    finish_all(cell, requests)


def test_swapped_ones_resume_before_anybody_is_admitted() -> None:
    """Whoever arrives meanwhile waits behind them."""
    cell = starved()
    cell.run(lambda: cell.state.counts["swapped_out_blocks"] > 0)
    cell.submit("late", prompt(5, 700), params(2))

    assert cell.choice("late").phase is Phase.WAITING and cell.status.waiting == 2
    cell.run(lambda: cell.choice("late").phase is not Phase.WAITING)
    assert cell.choice("c").phase is not Phase.WAITING
    finish_all(cell, {**REQUESTS, "late": (prompt(5, 700), 2)})


def leaving(cell: Cell) -> bool:
    return cell.choice("c").swap_out is not None


def resting(cell: Cell) -> bool:
    return cell.choice("c") in cell.state.swapped


def returning(cell: Cell) -> bool:
    return cell.choice("c").swapped is not None and bool(cell.choice("c").worker)


STATES = pytest.mark.parametrize("there", [leaving, resting, returning])


def at(there: Callable[[Cell], bool]) -> Cell:
    """A starved cell at the moment when `c` is in that state; what its worker had to say more is lost."""
    cell = starved()
    while not there(cell):
        for message in decoder(cell).boundary():
            if not there(cell):
                cell.turn(message)
    return cell


def decoder(cell: Cell) -> FakeWorker:
    return next(iter(cell.workers.values()))


def is_free(cell: Cell) -> bool:
    """Nobody goes on from anything in the tier, and none may write to it; prefixes may rest there."""
    tier = cell.state.memory.tier
    return tier.available_blocks == HOST_BLOCKS


@STATES
def test_a_cancel_frees_both_ends(there: Callable[[Cell], bool]) -> None:
    """Its blocks and those of the tier; the others end as they must."""
    cell = at(there)
    cell.cancel("c")
    cell.replace(decoder(cell))
    finish_all(cell, others("c"))
    assert is_free(cell)


@STATES
def test_a_deadline_frees_both_ends(there: Callable[[Cell], bool]) -> None:
    """Like a cancel, with an error that its gateway hears."""
    cell = at(there)
    choice, group = cell.choice("c"), cell.state.requests["c"]
    group.sequence = replace(group.sequence, deadline_unix_ms=int(cell.now_s * 1000))
    cell.state.deadlines.insert(0, (group.deadline_s, "c"))
    cell.turn()
    assert choice.phase is Phase.FAILED
    cell.answer("c", live=True)
    cell.replace(decoder(cell))
    finish_all(cell, others("c"))
    assert is_free(cell)


@STATES
def test_a_worker_may_die(there: Callable[[Cell], bool]) -> None:
    """What rests in the tier outlives it; what was on its way is taken from where it certainly is."""
    cell = at(there)
    cell.replace(decoder(cell))
    finish_all(cell, REQUESTS)
    assert is_free(cell)


def test_host_blocks_of_a_lost_worker_wait_for_its_end() -> None:
    """It may thaw and copy into them: nobody else gets them before it is gone."""
    cell = at(leaving)
    worker, out = decoder(cell), cell.choice("c").swap_out
    assert out is not None
    cell.close_link(worker)
    cell.pass_while_alive(1.5)

    assert cell.state.memory.tier.pool.freeing == set(out.host_blocks)
    cell.replace(worker)
    assert cell.state.memory.tier.pool.freeing == set()
    finish_all(cell, REQUESTS)


@pytest.mark.parametrize("lost", ["swap_outs", "swap_ins"])
def test_a_lost_order_is_no_lost_block(lost: str) -> None:
    """A version that never arrives, and the Snapshot that stands for it: the swap did not happen, or happens then."""
    cell = hybrid(blocks=12, host_blocks=HOST_BLOCKS, preemption=SWAP)
    dropped: list[Send] = []

    def lose(send: Send) -> bool:
        if not dropped and isinstance(send.message, Delta) and getattr(send.message, lost):
            dropped.append(send)
            return True
        return False

    cell.lose = lose
    for name, (ids, max_tokens) in REQUESTS.items():
        cell.submit(name, ids, params(max_tokens))
    cell.run(lambda: bool(dropped))
    decoder(cell).detach()
    cell.attach(decoder(cell))
    finish_all(cell, REQUESTS)
    assert is_free(cell)


def test_a_new_term_forgets_the_tier() -> None:
    """What rested there is computed again."""
    cell = at(resting)
    cell.state = State(cell.policy, 2)
    decoder(cell).detach()
    cell.attach(decoder(cell))
    for name, (ids, max_tokens) in REQUESTS.items():
        cell.turn(cell.arrival(name, ids, params(max_tokens), is_older=True))
    cell.pass_while_alive(2.0)
    cell.run()
    for name, (ids, max_tokens) in REQUESTS.items():
        assert tuple(cell.gateway.held[name].ids) == expected(ids, params(max_tokens))[0]
        cell.deliver(name)
    assert cell.is_clean and is_free(cell)


def test_workers_of_a_cell_have_one_tier() -> None:
    """One that is attached to another is refused."""
    cell = hybrid(host_blocks=4)
    cell.tier = FakeTier(cell.pool, 5)
    cell.add_worker("decode-2", DECODE)

    assert "host tier" in cell.refused[0].reason
