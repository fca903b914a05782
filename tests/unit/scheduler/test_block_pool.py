"""Blocks: counts, and when one may be used again."""

from services.scheduler.block_pool import BlockPool


def counts(pool: BlockPool) -> tuple[int, int, int, int]:
    return pool.free_blocks, len(pool.cached), pool.held_blocks, len(pool.freeing)


def dropped(pool: BlockPool, named: dict[str, int]) -> int:
    """A block that its one user gave up."""
    [block] = pool.take(1)
    assert pool.dereference(block, named)
    pool.discard(block)
    return block


def test_a_block_that_no_order_named_is_free_at_once() -> None:
    """Nothing can write it: a choice may be given up before its first order went out."""
    pool = BlockPool(4)
    dropped(pool, {})
    assert counts(pool) == (4, 0, 0, 0)


def test_a_block_is_freeing_until_its_worker_has_begun_the_removal() -> None:
    """Until then a step may still run under an order that names it."""
    pool = BlockPool(4)
    pool.attach("w", 3)
    dropped(pool, {"w": 5})
    pool.begin("w", 4)
    assert counts(pool) == (3, 0, 0, 1)
    pool.begin("w", 5)
    assert counts(pool) == (4, 0, 0, 0)


def test_a_block_waits_for_every_worker_that_knew_it() -> None:
    """After a hand-over both ends must have begun their removal, in whichever order."""
    pool = BlockPool(1)
    pool.attach("p", 0)
    pool.attach("d", 0)
    dropped(pool, {"p": 2, "d": 7})
    pool.begin("d", 7)
    assert counts(pool) == (0, 0, 0, 1)
    pool.begin("p", 2)
    assert counts(pool) == (1, 0, 0, 0)


def test_a_worker_that_is_gone_names_nothing() -> None:
    """Its process cannot write any more."""
    pool = BlockPool(1)
    pool.attach("w", 0)
    dropped(pool, {"w": 9})
    pool.forget("w")
    assert counts(pool) == (1, 0, 0, 0)


def test_a_removal_begun_already_holds_nothing_up() -> None:
    """The usual case: the report that confirms a removal comes after its Began."""
    pool = BlockPool(1)
    pool.attach("w", 5)
    dropped(pool, {"w": 5})
    assert counts(pool) == (1, 0, 0, 0)


def test_a_shared_block_is_held_until_its_last_user_left() -> None:
    """The notes of all its users count when it is given up."""
    pool = BlockPool(1)
    pool.attach("w", 0)
    [block] = pool.take(1)
    pool.reference(block)
    assert not pool.dereference(block, {"w": 4})
    assert counts(pool) == (0, 0, 1, 0)
    assert pool.dereference(block, {"w": 2})
    pool.discard(block)
    pool.begin("w", 3)
    assert counts(pool) == (0, 0, 0, 1)


def test_a_cached_block_remembers_its_notes_until_it_is_evicted() -> None:
    """Reading it is safe meanwhile, writing it is not."""
    pool = BlockPool(1)
    pool.attach("w", 0)
    [block] = pool.take(1)
    assert pool.dereference(block, {"w": 2})
    pool.cache(block)
    assert counts(pool) == (0, 1, 0, 0)
    pool.discard(block)
    assert counts(pool) == (0, 0, 0, 1)


def test_a_cached_block_is_held_again_by_its_next_user() -> None:
    """A prefix hit takes it out of what may be evicted."""
    pool = BlockPool(1)
    [block] = pool.take(1)
    pool.dereference(block, {})
    pool.cache(block)
    pool.reference(block)
    assert counts(pool) == (0, 0, 1, 0)
