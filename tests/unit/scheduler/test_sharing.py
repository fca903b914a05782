"""Prompts that begin alike: shared blocks, copies, waiting for one another, eviction."""

from dataclasses import replace

import pytest

from libs.contracts.messages import Delta
from services.scheduler.eviction import Caching
from services.scheduler.reasons import Reason
from tests.fakes.engine import expected
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt


def ran(cell: Cell, request_id: str, ids: tuple[int, ...], max_tokens: int = 4) -> int:
    """Run one request to its end; how many of its tokens were cached."""
    cell.submit(request_id, ids, params(max_tokens))
    cell.run()
    assert cell.log(request_id) == expected(ids, params(max_tokens))[0]
    return cell.choice(request_id).cached_tokens


@pytest.mark.parametrize(("tokens", "cached"), [(40, 32), (33, 32), (31, 30), (16, 15), (32, 31), (15, 14), (12, 0)])
@pytest.mark.parametrize("make", [hybrid, disaggregated])
def test_a_prompt_seen_before_is_computed_from_its_last_block_on(make: type[Cell], tokens: int, cached: int) -> None:
    """At most all but its last token. Where that is inside of a block that is there, it is copied as far as that."""
    cell = make()
    ran(cell, "first", prompt(tokens))
    assert ran(cell, "second", prompt(tokens)) == cached
    copies = [copy for send in cell.sent if isinstance(send.message, Delta) for copy in send.message.copies]
    assert [copy.tokens for copy in copies] == [cached % 16] * (cached % 16 > 0)


def test_a_prompt_that_parts_inside_a_block_is_computed_from_there() -> None:
    """The other's block lends the tokens they share, and is free of it when the copy is reported."""
    cell = hybrid()
    ran(cell, "first", prompt(48))
    other = (*prompt(40), *prompt(20, 800))
    assert ran(cell, "second", other) == 40
    assert ran(cell, "third", (*prompt(18), *prompt(20, 700))) == 16  # two tokens are not worth a copy
    for name in ("first", "second", "third"):
        cell.deliver(name)
    assert cell.is_clean


def test_the_worker_dies_before_it_reports_the_copy_of_a_part() -> None:
    """What goes on elsewhere takes no more of the source than its prompt has in common with it."""
    cell = hybrid()
    ran(cell, "first", prompt(48))
    other = (*prompt(40), *prompt(20, 800))
    cell.submit("second", other, params(4))
    cell.replace(next(iter(cell.workers.values())))
    cell.run()
    assert cell.log("second") == expected(other, params(4))[0]


def test_without_prefix_caching_nothing_is_found() -> None:
    """Nor is anything kept."""
    cell = hybrid(caching=Caching(is_on=False))
    ran(cell, "first", prompt(40))
    assert ran(cell, "second", prompt(40)) == 0
    for name in ("first", "second"):
        cell.deliver(name)
    assert cell.blocks[0] == 64 and not cell.indexed


def test_a_full_hit_needs_no_chunk() -> None:
    """One token is left, and a row with one token advances by itself."""
    cell = hybrid()
    ran(cell, "first", prompt(33))
    chunks = chunk_items(cell)
    ran(cell, "second", prompt(33))
    assert chunk_items(cell) == chunks


def test_prompts_whose_blocks_have_one_hash_are_told_apart() -> None:
    """Tokens are compared, not hashes: nobody finds what is another's, and each finds all of its own again."""
    cell = hybrid(blocks=128)
    for run, cached in enumerate((0, 31)):
        for first in range(32):
            name, ids = f"{run}-{first}", (first, *prompt(31))
            arrived = cell.arrival(name, ids, params(4))
            cell.turn(replace(arrived, sequence=replace(arrived.sequence, block_hashes=(b"x", b"x"))))
            cell.run()
            assert (cell.log(name), cell.choice(name).cached_tokens) == (expected(ids, params(4))[0], cached)
            cell.deliver(name)
    assert cell.is_clean


def test_an_answer_is_a_prefix_of_the_next_turn() -> None:
    """Generated blocks are cached as soon as their last token is committed."""
    cell = hybrid()
    ran(cell, "first", prompt(20), 40)
    history = prompt(20) + cell.log("first")
    assert ran(cell, "second", (*history, 7, 8, 9)) == 48  # 59 of 60 tokens were committed


def test_the_same_prompt_at_the_same_time_is_computed_once() -> None:
    """The second waits for the first one's blocks, with a reason, and holds nothing meanwhile."""
    cell = hybrid(max_chunk_tokens=16)
    cell.submit("a", prompt(50), params(4))
    cell.submit("b", prompt(50), params(4))
    assert cell.choice("b").reason is Reason.PENDING_PREFIX
    assert not cell.choice("b").table
    cell.run()
    assert cell.choice("b").cached_tokens == 48
    assert cell.ordered["b"].keys() == {"behind_older", "pending_prefix"}
    assert cell.log("a") == cell.log("b") == expected(prompt(50), params(4))[0]


def test_who_waits_for_a_prefix_does_not_hold_up_the_others() -> None:
    """It is passed over: what it needs is another's time."""
    cell = hybrid(max_chunk_tokens=16)
    cell.turn(cell.arrival("a", prompt(50)), cell.arrival("b", prompt(50)), cell.arrival("c", prompt(20, 500)))
    assert [cell.choice(name).reason for name in "abc"] == [Reason.ADMITTED, Reason.PENDING_PREFIX, Reason.ADMITTED]


def test_the_waiter_computes_itself_what_its_owner_left_undone() -> None:
    """The owner's pending blocks vanish with it; what it had committed stays."""
    cell = hybrid(max_chunk_tokens=16)
    worker = next(iter(cell.workers.values()))
    cell.submit("a", prompt(90), params(4))
    cell.submit("b", prompt(90), params(4))
    for _ in range(3):
        cell.step(worker)
    cell.cancel("a")
    cell.run()
    assert cell.choice("b").cached_tokens == 48  # two steps are in, one more was ordered
    assert cell.log("b") == expected(prompt(90), params(4))[0]
    assert cell.deliver("b") and cell.is_clean


def test_tenants_do_not_share() -> None:
    """How long a prompt takes must not tell what another tenant asked."""
    cell = hybrid()
    cell.submit("a", prompt(40), params(4), tenant="t1")
    cell.run()
    cell.submit("b", prompt(40), params(4), tenant="t2")
    cell.run()
    assert cell.choice("b").cached_tokens == 0


@pytest.mark.parametrize("other", [{"adapter": "a"}, {"cache_salt": "s"}])
def test_prefixes_are_shared_within_adapter_and_salt_alone(other: dict[str, str]) -> None:
    """An adapter writes other KV; a salt is there to be alone with."""
    cell = hybrid()
    ran(cell, "plain", prompt(40))
    for name, cached in (("first", 0), ("second", 32)):
        arrived = cell.arrival(name, prompt(40), params(4))
        cell.turn(replace(arrived, sequence=replace(arrived.sequence, **other)))  # type: ignore[arg-type]
        cell.run()
        assert cell.choice(name).cached_tokens == cached


def test_old_prefixes_make_room_for_new_prompts() -> None:
    """The least recently used one goes first."""
    cell = hybrid(blocks=8)
    for name, first in (("a", 100), ("b", 300)):
        ran(cell, name, prompt(40, first))
        cell.deliver(name)
    assert ran(cell, "a again", prompt(40, 100)) == 32
    cell.deliver("a again")
    ran(cell, "c", prompt(90, 500))
    cell.deliver("c")
    assert cell.blocks[:2] == (1, 7)  # c's five, and the two of a
    assert ran(cell, "b again", prompt(33, 300)) == 0


def test_a_prompt_as_large_as_the_pool_does_without_the_copy() -> None:
    """The copy's source would be the block that is missing."""
    cell = hybrid(blocks=3)
    ran(cell, "a", prompt(32), 2)
    cell.deliver("a")
    assert ran(cell, "b", prompt(32), 2) == 16


def test_two_equal_requests_side_by_side_keep_their_own_answers_blocks() -> None:
    """The second finds its generated block in the tree already, and keeps its own to itself."""
    cell = hybrid()
    ran(cell, "warm", prompt(20), 1)
    cell.submit("a", prompt(20), params(40))
    cell.submit("b", prompt(20), params(40))
    cell.run()
    assert cell.log("a") == cell.log("b") == expected(prompt(20), params(40))[0]
    for name in ("warm", "a", "b"):
        cell.deliver(name)
    assert cell.is_clean and cell.blocks[1] == 3


def chunk_items(cell: Cell) -> int:
    return sum(len(send.message.chunks) for send in cell.sent if isinstance(send.message, Delta))
