"""Whose cached blocks go first, and whose stay."""

import pytest

from services.scheduler.eviction import ANYONE, LATER, Bounds, Cached, Caching, Lot, Shelves, choose
from tests.fakes.engine import expected
from tests.unit.scheduler.cell import Cell, hybrid, params, prompt

BOUNDS = Bounds(floor=10, ceiling=50, held=50)


@pytest.mark.parametrize(
    ("cached", "wanting", "goes"),
    [
        ({"a": Cached(20, 5), "b": Cached(20, 3)}, "a", Lot("b", 10, 5)),  # the least recently used, down to its floor
        ({"a": Cached(20, 5), "b": Cached(10, 3)}, "a", Lot("a", 20, LATER)),  # b's are what its floor keeps
        ({"a": Cached(20, 5), "b": Cached(10, 3)}, "b", Lot("b", 10, 5)),  # but not from itself
        ({"b": Cached(10, 3)}, "a", None),
        ({"b": Cached(10, 3)}, ANYONE, Lot("b", 10, LATER)),  # a floor is not held against whoever runs alone
        ({"a": Cached(51, 9), "b": Cached(30, 3)}, "b", Lot("a", 1, LATER)),  # beyond the ceiling, although used later
        ({"a": Cached(60, 3), "b": Cached(70, 4)}, "c", Lot("b", 20, LATER)),  # furthest beyond it
        ({name: Cached(10, 9 - index) for index, name in enumerate("defghi")}, "a", Lot("i", 10, 5)),  # too much held
        ({}, "a", None),
    ],
)
def test_whose_blocks_go(cached: dict[str, Cached], wanting: str | None, goes: Lot | None) -> None:
    """Beyond a ceiling first; else the oldest that no floor keeps, until another tenant's are older."""
    assert choose(cached, wanting, BOUNDS) == goes


def test_what_may_go_is_what_goes() -> None:
    """The count that admission goes by is the number of blocks that eviction then gives, for everybody."""
    caching = Caching(floor_share=0.1, ceiling_share=0.5)
    for wanting in ("a", "b", "nobody", ANYONE):
        shelves = Shelves(Bounds.of(caching, 100))
        for block in range(90):
            shelves.rest("abcdefgh"[block % 8] if block < 64 else "a", block)
        promised, given = shelves.evictable(wanting), 0
        while lot := shelves.next_lot(wanting, 3):
            for block in lot:
                shelves.wake(block)
            given += len(lot)
            assert shelves.evictable(wanting) == promised - given
        assert given == promised > 0


def test_the_least_recently_used_goes_first() -> None:
    """What is used again is the most recent once it rests again."""
    shelves = Shelves(Bounds.of(Caching(), 100))
    for block in (1, 2, 3):
        shelves.rest("t", block)
    shelves.wake(1)
    shelves.rest("t", 1)
    assert shelves.next_lot("t", 2) == [2, 3]


def test_tenants_take_turns_by_age() -> None:
    """What goes at once is what would go one by one."""
    lots, singles = (Shelves(Bounds.of(Caching(), 100)) for _ in range(2))
    for shelves in (lots, singles):
        for block, tenant in enumerate("aabbbacab"):
            shelves.rest(tenant, block)
    gone: dict[Shelves, list[int]] = {lots: [], singles: []}
    for shelves, most in ((lots, 4), (singles, 1)):
        while lot := shelves.next_lot("a", most):
            gone[shelves] += lot
            for block in lot:
                shelves.wake(block)
    assert gone[lots] == gone[singles] == list(range(9))


def asked(cell: Cell, request_id: str, tenant: str, ids: tuple[int, ...]) -> int:
    """Run and deliver one request of a tenant; how many of its tokens were cached."""
    cell.submit(request_id, ids, params(2), tenant=tenant)
    cell.run()
    assert cell.log(request_id) == expected(ids, params(2))[0]
    cached = cell.choice(request_id).cached_tokens
    cell.deliver(request_id)
    return cached


@pytest.mark.parametrize(("floor", "ceiling"), [(0.1, 1.0), (0.0, 0.5)])
def test_a_flood_of_another_tenants_prefixes_leaves_a_tenant_its_own(floor: float, ceiling: float) -> None:
    """Be it for the floor or for the ceiling: what the flood has cached makes room for the rest of it."""
    cell = hybrid(blocks=40, caching=Caching(floor_share=floor, ceiling_share=ceiling))
    asked(cell, "quiet", "quiet", prompt(65, 100))
    for number in range(12):
        for name in ("x", "y"):
            cell.submit(f"{name}{number}", prompt(100, 1000 * number + 200 * (name == "y")), params(2), tenant="flood")
        cell.run()
        for name in ("x", "y"):
            cell.deliver(f"{name}{number}")
    assert asked(cell, "quiet again", "quiet", prompt(65, 100)) == 64


def test_a_request_that_runs_alone_gets_all_of_the_pool() -> None:
    """Whatever floors would keep: it would never fit otherwise."""
    cell = hybrid(blocks=20, caching=Caching(floor_share=0.5, ceiling_share=0.5))
    asked(cell, "quiet", "quiet", prompt(65, 100))
    cell.submit("large", prompt(300, 500), params(19), tenant="other")
    cell.run()
    assert cell.log("large") == expected(prompt(300, 500), params(19))[0]
