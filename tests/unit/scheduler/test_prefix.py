"""The prefix tree: what is found, what is pending, where runs part."""

from services.scheduler.prefix import NO_BLOCK, Key, PrefixTree
from services.scheduler.tail import Tail

SIZE = 4
T = Key("t")


def grown(tree: PrefixTree, ids: list[int], first_block: int = 0, *, key: Key = T, owner: int = 0) -> list[int]:
    """The path of all full blocks of `ids`, added where it was not there, as blocks from `first_block` on."""
    known, whole = tree.path(key, ids), len(ids) // SIZE
    blocks = [first_block + index for index in range(len(known), whole)]
    if blocks:
        after = known[-1] if known else NO_BLOCK
        assert tree.insert(key, after, len(known), ids[len(known) * SIZE : whole * SIZE], blocks, owner=owner)
    return known + blocks


def found(tree: PrefixTree, ids: list[int], key: Key = T) -> tuple[int, ...]:
    return tree.match(key, ids).blocks


def test_the_longest_known_prefix_is_found() -> None:
    """Whole blocks only: a block that differs in one token, or is not full, is no hit."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4, 5, 6, 7, 8])
    assert found(tree, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == (0, 1)
    assert found(tree, [1, 2, 3, 4, 5, 6, 7, 0, 9]) == (0,)
    assert found(tree, [0, 2, 3, 4, 5]) == ()


def test_a_prompt_that_ends_with_a_cached_block_copies_that_one() -> None:
    """Its last token is computed, to sample after it, and that must not write a shared block."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4, 5, 6, 7, 8])
    hit = tree.match(T, [1, 2, 3, 4, 5, 6, 7, 8])
    assert (hit.blocks, hit.tail) == ((0,), Tail(1, 3))


def test_a_block_that_matches_in_part_lends_its_first_tokens() -> None:
    """Inside a run, at its end, and at the very beginning; never the prompt's last token."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4, 5, 6, 7, 8])
    assert tree.match(T, [1, 2, 3, 4, 5, 6, 0, 0, 0]).tail == Tail(1, 2)
    assert tree.match(T, [1, 2, 3, 4, 5, 6]).tail == Tail(1, 1)
    assert tree.match(T, [1, 2, 0]).tail == Tail(0, 2)
    assert tree.match(T, [1, 2, 3, 4, 9, 9, 9]).tail is None


def test_of_many_blocks_the_one_that_shares_most_is_found() -> None:
    """Whatever their number: runs below one are in the order of their ids."""
    tree = PrefixTree(SIZE)
    for number in range(200):
        grown(tree, [1, 1, 1, 1, number, number, number, number], 10 * number)
    hit = tree.match(T, [1, 1, 1, 1, 77, 77, 9, 9, 9])
    assert (hit.blocks, hit.tail) == ((0,), Tail(771, 2))


def test_few_tokens_are_not_worth_a_copy() -> None:
    """Fewer than a quarter of a block are computed instead."""
    tree = PrefixTree(16)
    tree.insert(T, NO_BLOCK, 0, list(range(16)), [0], owner=0)
    assert tree.match(T, [0, 1, 2, 99, 99]).tail is None
    assert tree.match(T, [0, 1, 2, 3, 99]).tail == Tail(0, 4)


def test_keys_share_nothing() -> None:
    """The same tokens of another tenant, adapter or salt are unknown, however often they were computed."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4], key=Key("a", "x", "y"))
    for other in (Key("b", "x", "y"), Key("a", "z", "y"), Key("a", "x")):
        hit = tree.match(other, [1, 2, 3, 4, 5])
        assert (hit.blocks, hit.tail) == ((), None)


def test_a_path_is_as_long_as_it_branches() -> None:
    """Blocks in a row are one run; it parts where prompts part, and what others know of its blocks stays true."""
    tree = PrefixTree(SIZE)
    long = list(range(1, 41))
    grown(tree, long)
    assert len(set(map(id, tree.runs.values()))) == 1
    grown(tree, [*long[:20], 99, 99, 99, 99], 20)
    assert len(set(map(id, tree.runs.values()))) == 3
    assert found(tree, [*long, 0]) == tuple(range(10))
    assert found(tree, [*long[:20], 99, 99, 99, 99, 0]) == (0, 1, 2, 3, 4, 25)


def test_what_follows_the_end_of_a_run_makes_it_longer() -> None:
    """An answer adds block after block, without a run for each."""
    tree = PrefixTree(SIZE)
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    for blocks in (1, 2, 3):
        grown(tree, ids[: blocks * SIZE])
    assert len(set(map(id, tree.runs.values()))) == 1
    assert found(tree, [*ids, 0]) == (0, 1, 2)


def test_tokens_that_another_block_holds_are_not_added() -> None:
    """Who computed the same beside it keeps its own to itself."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4, 5, 6, 7, 8])
    assert not tree.insert(T, NO_BLOCK, 0, [1, 2, 3, 4, 0, 0, 0, 0], [7, 8], owner=0)
    assert not tree.insert(T, 0, 1, [5, 6, 7, 8], [7], owner=0)
    assert set(tree.runs) == {0, 1}


def test_the_deepest_pending_block_is_what_to_wait_for() -> None:
    """Its owner commits in order, so then all before it is there as well."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4, 5, 6, 7, 8], owner=7)
    hit = tree.match(T, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert hit.pending is not None
    assert (hit.blocks, hit.pending.depth) == ((), 2)


def test_waiters_are_told_of_what_they_wait_for_and_of_its_end() -> None:
    """Whichever comes, they have to be looked at again."""
    tree = PrefixTree(SIZE)
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    run = tree.runs[grown(tree, ids, owner=7)[0]]
    for handle, prompt in ((11, [*ids[:4], 0]), (12, [*ids[:8], 0]), (13, [*ids, 0])):
        pending = tree.match(T, prompt).pending
        assert pending is not None
        pending.park(handle)
    assert tree.commit(run, 1) == [11]
    assert tree.match(T, [*ids[:4], 0]).blocks == (0,)
    assert tree.abandon(run) == [12, 13]
    assert found(tree, [*ids, 0]) == (0,)


def test_who_waits_goes_on_waiting_where_a_run_parts() -> None:
    """Another one may branch off from what is committed of it."""
    tree = PrefixTree(SIZE)
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    run = tree.runs[grown(tree, ids, owner=7)[0]]
    pending = tree.match(T, [*ids, 0]).pending
    assert pending is not None
    pending.park(11)
    tree.commit(run, 2)
    grown(tree, [1, 2, 3, 4, 0, 0, 0, 0], 20)
    assert tree.commit(tree.runs[2], 3) == [11]
    assert found(tree, [*ids, 0]) == (0, 1, 2)


def test_a_tree_without_blocks_is_empty() -> None:
    """Not even a tenant's name is left."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4, 5, 6, 7, 8])
    grown(tree, [1, 2, 3, 4, 9, 9, 9, 9], 10)
    for block in (11, 1, 0):
        tree.evict(block)
    assert not tree.runs and not tree.roots
