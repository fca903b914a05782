"""Prefixes that are evicted from the pool rest in the host tier, and are found again there."""

from collections.abc import Callable

import pytest

from libs.contracts.messages import Delta, Resident, Swap
from services.scheduler.events import Send
from services.scheduler.prefix import Key
from tests.fakes.engine import expected
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt
from tests.unit.scheduler.test_swapping import decoder, is_free

SYSTEM = prompt(48, 100)  # three blocks
KEY = Key("t")
HOST_BLOCKS = 16


def serve(cell: Cell, name: str, ids: tuple[int, ...], max_tokens: int = 4) -> None:
    """One request from its arrival to its end, with the right tokens."""
    cell.submit(name, ids, params(max_tokens))
    cell.run()
    assert cell.log(name) == expected(ids, params(max_tokens))[0]
    cell.deliver(name)


def flush(cell: Cell) -> None:
    """Others use every block of the pool."""
    for number in range(5):
        serve(cell, f"other-{number}", prompt(40, 200 + 60 * number))
    assert cell.state.memory.tree.path(KEY, list(SYSTEM)) == []


def crowded(role: Callable[..., Cell] = hybrid, **changes: object) -> Cell:
    """A first request has left its prefix, which the pool has no room for any more."""
    cell = role(**{"blocks": 10, "host_blocks": HOST_BLOCKS, **changes})
    serve(cell, "warm", prompt(20, 900))  # the pace of a prefill is known
    serve(cell, "first", (*SYSTEM, 900, 901))
    flush(cell)
    return cell


def first_add(cell: Cell, name: str) -> tuple[Resident, tuple[Swap, ...]]:
    """How it began, and what was brought back with it."""
    return next(
        (resident, delta.swap_ins) for delta in cell.deltas for resident in delta.added if resident.request_id == name
    )


@pytest.mark.parametrize("role", [hybrid, disaggregated])
def test_an_evicted_prefix_is_found_in_the_tier(role: Callable[..., Cell]) -> None:
    """It comes back with the add instead of being computed again; its copy stays for the next time."""
    cell = crowded(role)

    serve(cell, "again", (*SYSTEM, 950, 951))

    added, back = first_add(cell, "again")
    assert added.cursor == added.cached_tokens == 48 and [len(swap.blocks) for swap in back] == [3]
    assert cell.state.counts["rested_hits"] == 1
    assert cell.is_clean and is_free(cell)
    for number in range(5):
        serve(cell, f"more-{number}", prompt(40, 250 + 60 * number))
    serve(cell, "thrice", (*SYSTEM, 960))
    assert first_add(cell, "thrice")[0].cursor >= 32


def test_a_prompt_that_ends_in_the_tier_computes_its_last_token() -> None:
    """To draw after it; the block is its own, so nobody's KV is written over."""
    cell = crowded()
    serve(cell, "again", SYSTEM)

    assert first_add(cell, "again")[0].cursor == 47


def test_what_is_in_the_pool_is_shared_and_only_the_rest_comes_back() -> None:
    """A path goes on from one to the other."""
    cell = crowded()
    serve(cell, "short", SYSTEM[:17])
    serve(cell, "again", (*SYSTEM, 950))

    added, back = first_add(cell, "again")
    assert added.cursor == 48 and [len(swap.blocks) for swap in back] == [2]


def test_nothing_rests_where_computing_again_is_cheaper() -> None:
    """The first block that is copied shows how slow the tier is."""
    cell = hybrid(blocks=10, host_blocks=HOST_BLOCKS)
    assert cell.tier is not None
    cell.tier.block_ns = 10**9
    serve(cell, "warm", prompt(20, 900))
    serve(cell, "first", (*SYSTEM, 900, 901))
    flush(cell)

    assert cell.state.counts["rested_blocks"] <= 1
    serve(cell, "again", (*SYSTEM, 950))
    assert first_add(cell, "again")[0].cursor == 0 and cell.state.counts["rested_hits"] == 0


def test_the_least_recently_used_prefix_leaves_the_tier() -> None:
    """It is bounded as the pool is, and swaps come before prefixes."""
    cell = crowded(host_blocks=4)
    tier = cell.state.memory.tier

    assert tier.tree.path(KEY, list(SYSTEM)) == [] and 0 < len(tier.shelves) <= 4
    taken = tier.take(4)
    assert taken is not None and len(tier.shelves) == 0
    tier.give_back_all(taken, {})


def test_a_lost_worker_leaves_no_prefix_on_its_way() -> None:
    """What it was copying is in neither place twice, and free once it is gone."""
    cell = hybrid(blocks=10, host_blocks=HOST_BLOCKS)
    serve(cell, "first", (*SYSTEM, 900, 901))
    cell.submit("next", prompt(90, 300), params(4))
    worker = decoder(cell)
    while cell.state.resting is None:
        for message in worker.boundary():
            cell.turn(message)
    host_blocks = set(cell.state.resting.host_blocks)
    cell.close_link(worker)
    cell.pass_while_alive(1.5)

    assert cell.state.resting is None and cell.state.memory.tier.pool.freeing == host_blocks
    cell.replace(worker)
    cell.run()
    cell.deliver("next")
    assert cell.is_clean and is_free(cell)


def test_a_lost_order_takes_its_prefix_along() -> None:
    """The Snapshot that stands for it copies nothing, and says nothing of it."""
    cell = hybrid(blocks=10, host_blocks=HOST_BLOCKS)
    lost: list[Send] = []

    def lose(send: Send) -> bool:
        if not lost and isinstance(send.message, Delta) and any(not swap.sequence for swap in send.message.swap_outs):
            lost.append(send)
            return True
        return False

    cell.lose = lose
    serve(cell, "first", (*SYSTEM, 900, 901))
    cell.submit("next", prompt(90, 300), params(4))
    cell.run(lambda: bool(lost))
    assert cell.state.resting is not None
    decoder(cell).detach()
    cell.attach(decoder(cell))
    assert cell.state.counts["rested_blocks"] == 0
    cell.run()
    assert cell.log("next") == expected(prompt(90, 300), params(4))[0]
    cell.deliver("next")
    assert cell.is_clean and is_free(cell)
