"""Which cached block goes when somebody wants room: least recently used first, within what each tenant may keep.

Two bounds keep tenants from flushing each other's prefixes. The *floor*: a tenant's most recent cached blocks, up to
that many, do not go for another tenant. The *ceiling*: what a tenant has cached beyond it goes first. All floors
together hold at most half of the pool, and none is held against a choice that runs alone: they delay, but never starve.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice, takewhile
from typing import NamedTuple

ANYONE = None  # wants room at any price: no floor is held against it
HELD_SHARE = 0.5  # of the pool, that all floors together may hold
LATER = 1 << 62  # than any use


@dataclass(frozen=True, slots=True)
class Caching:
    """What an operator decides; shares are of the pool's blocks, per tenant, 0 to 1."""

    is_on: bool = True  # off: no prefix is kept, or found
    floor_share: float = 0.0
    ceiling_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The shares in blocks."""

    floor: int
    ceiling: int
    held: int

    @classmethod
    def of(cls, caching: Caching, total_blocks: int) -> "Bounds":
        shares = (caching.floor_share, caching.ceiling_share, HELD_SHARE)
        return cls(*(int(share * total_blocks) for share in shares))


class Cached(NamedTuple):
    """One tenant's cached blocks: how many, and when the oldest of them was used last (a count, not a time)."""

    blocks: int
    oldest: int


class Lot(NamedTuple):
    """What may go before another tenant's turn comes: at most so many of its blocks, of those used last before that."""

    tenant: str
    blocks: int
    before: int


def choose(tenants: Mapping[str, Cached], wanting: str | None, bounds: Bounds) -> Lot | None:
    """Whose least recently used blocks go; None when all that is cached is held for others.

    The tenant furthest above the ceiling; else the one whose block is the oldest, of those above the floor and the one
    that wants room; else, where floors hold more than they may together, or hold nothing against it, of all.
    """
    above = {tenant: cached for tenant, cached in tenants.items() if cached.blocks > bounds.ceiling}
    if above:
        tenant = max(above, key=lambda tenant: above[tenant].blocks)
        return Lot(tenant, above[tenant].blocks - bounds.ceiling, LATER)
    free = {tenant: it for tenant, it in tenants.items() if it.blocks > bounds.floor or tenant == wanting}
    if free:
        tenant, before = _oldest(free)
        return Lot(tenant, free[tenant].blocks - bounds.floor * (tenant != wanting), before)
    spare = sum(it.blocks for it in tenants.values()) - (0 if wanting is ANYONE else bounds.held)
    if spare <= 0:
        return None
    tenant, before = _oldest(tenants)
    return Lot(tenant, spare, before)


def _oldest(tenants: Mapping[str, Cached]) -> tuple[str, int]:
    """Whose block is the oldest, and when the next one's was used last."""
    first, *second = nsmallest(2, tenants, key=lambda tenant: tenants[tenant].oldest)
    return first, tenants[second[0]].oldest if second else LATER


class Shelves:
    """Cached blocks, per tenant, least recently used first.

    A table is a path from a root, so whoever references a block references those before it. In the order in which
    blocks became unreferenced (deepest first when together) the first is therefore one with nothing below it.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._uses = 0
        self._held = 0  # blocks below floors
        self.tenants: dict[str, OrderedDict[int, int]] = {}  # block → when it was used last
        self.blocks: dict[int, str] = {}  # block → tenant

    def __len__(self) -> int:
        return len(self.blocks)

    def __contains__(self, block: int) -> bool:
        return block in self.blocks

    def rest(self, tenant: str, block: int) -> None:
        """It is unreferenced: the most recently used of those."""
        shelf = self.tenants.setdefault(tenant, OrderedDict())
        self._uses += 1
        shelf[block] = self._uses
        self.blocks[block] = tenant
        self._held += len(shelf) <= self.bounds.floor

    def wake(self, block: int) -> None:
        """It is referenced again, or gone; one that did not rest stays as it is."""
        tenant = self.blocks.pop(block, None)
        if tenant is not None:
            shelf = self.tenants[tenant]
            del shelf[block]
            self._held -= len(shelf) < self.bounds.floor
            if not shelf:
                del self.tenants[tenant]

    def evictable(self, wanting: str | None) -> int:
        """How many may go for this tenant."""
        if wanting is ANYONE:
            return len(self.blocks)
        own = min(len(self.tenants.get(wanting, ())), self.bounds.floor)
        return len(self.blocks) - min(self._held - own, self.bounds.held)

    def next_lot(self, wanting: str | None, blocks: int) -> list[int]:
        """The blocks that go next for this tenant, at most so many; none when none may."""
        if len(self.tenants) == 1 and (wanting is ANYONE or wanting in self.tenants):
            return list(islice(self.blocks, blocks))  # no choice, and the usual case
        tenants = {tenant: Cached(len(shelf), next(iter(shelf.values()))) for tenant, shelf in self.tenants.items()}
        lot = choose(tenants, wanting, self.bounds)
        if lot is None:
            return []
        older = takewhile(lambda rested: rested[1] < lot.before, self.tenants[lot.tenant].items())
        return [block for block, _ in islice(older, min(blocks, lot.blocks))]
