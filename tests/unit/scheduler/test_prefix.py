"""The prefix tree: what is found, what is pending, what is evicted first."""

from services.scheduler.prefix import Node, PrefixTree

SIZE = 4


def grown(tree: PrefixTree, ids: list[int], first_block: int = 0, *, tenant: str = "t", owner: int = 0) -> list[Node]:
    """The path of all full blocks of `ids`, added where it was not there."""
    path = list(tree.match(tenant, [*ids, -1]).path)
    for index in range(len(path), len(ids) // SIZE):
        tokens = tree.tokens_of(ids, index)
        assert tree.extend(tenant, path, tokens, first_block + index, owner=owner, index_hash=b"")
    return path


def blocks(path: tuple[Node, ...]) -> list[int]:
    return [node.block for node in path]


def test_the_longest_known_prefix_is_found() -> None:
    """Whole blocks only: a block that differs in one token, or is not full, is no hit."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4, 5, 6, 7, 8])
    assert blocks(tree.match("t", [1, 2, 3, 4, 5, 6, 7, 8, 9]).path) == [0, 1]
    assert blocks(tree.match("t", [1, 2, 3, 4, 5, 6, 7, 0, 9]).path) == [0]
    assert blocks(tree.match("t", [0, 2, 3, 4, 5]).path) == []


def test_a_prompt_that_ends_with_a_cached_block_copies_that_one() -> None:
    """Its last token is computed, to sample after it, and that must not write a shared block."""
    tree = PrefixTree(SIZE)
    path = grown(tree, [1, 2, 3, 4, 5, 6, 7, 8])
    hit = tree.match("t", [1, 2, 3, 4, 5, 6, 7, 8])
    assert (blocks(hit.path), hit.tail) == ([0], path[1])


def test_tenants_share_nothing() -> None:
    """The same tokens of another tenant are unknown, however often they were computed."""
    tree = PrefixTree(SIZE)
    grown(tree, [1, 2, 3, 4], tenant="a")
    assert tree.match("b", [1, 2, 3, 4, 5]).path == ()


def test_the_deepest_pending_node_is_what_to_wait_for() -> None:
    """Its owner commits in order, so then all before it is there as well."""
    tree = PrefixTree(SIZE)
    path = grown(tree, [1, 2, 3, 4, 5, 6, 7, 8], owner=7)
    hit = tree.match("t", [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert (hit.path, hit.pending) == ((), path[1])


def test_waiters_are_told_of_a_commit_and_of_a_drop() -> None:
    """Whichever comes, they have to be looked at again."""
    tree = PrefixTree(SIZE)
    path = grown(tree, [1, 2, 3, 4, 5, 6, 7, 8], owner=7)
    path[0].waiters.append(11)
    path[1].waiters.append(12)
    assert tree.commit(path[0]) == [11]
    assert tree.drop(path[1]) == [12]
    assert blocks(tree.match("t", [1, 2, 3, 4, 5, 6, 7, 8, 9]).path) == [0]


def test_the_least_recently_used_leaf_is_evicted_first() -> None:
    """Never what others stand on, although it is as old as they are."""
    tree = PrefixTree(SIZE)
    old = grown(tree, [1, 2, 3, 4, 5, 6, 7, 8], 0)
    new = grown(tree, [1, 2, 3, 4, 9, 9, 9, 9], 10)
    for node in (old[1], new[1], new[0]):  # `old` was given up first, but shares its first block with `new`
        tree.rest(node)
    assert [tree.evict().block for _ in range(3)] == [1, 11, 0]
    assert not tree.nodes


def test_what_is_used_again_is_not_evicted() -> None:
    """A hit makes it the most recently used once it rests again."""
    tree = PrefixTree(SIZE)
    [first], [second] = grown(tree, [1, 1, 1, 1], 0), grown(tree, [2, 2, 2, 2], 1)
    tree.rest(first)
    tree.rest(second)
    tree.wake(first)
    tree.rest(first)
    assert tree.evict() is second
