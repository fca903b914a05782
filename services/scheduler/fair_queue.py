"""Whose turn it is among the tenants of one priority class.

The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, algorithm 2: the
tenant that was served the fewest tokens is next, and one that comes to wait is lifted to the least served of those who
wait, so that idle time is not saved up. For two tenants that both have something waiting all the time between two
moments, theorem 4.4 bounds the difference of what they are served meanwhile by 2 · max(input weight · longest prompt,
output weight · tokens in a batch).

Two kinds go before that: who was admitted before and had to leave, for it was paid for then; and the earliest deadline.
A deadline helps a tenant that is at most LEAD_TOKENS ahead of the least served one: beyond that it would be a way to
take what others are owed. It adds twice the lead to the bound.
"""

import heapq
from math import inf

from services.scheduler.share import Share

LEAD_TOKENS = 4096  # weighted


class FairQueue:
    """A change costs O(log n). What is looked at beyond that are tenants too far ahead for their deadlines to count."""

    def __init__(self, lead_tokens: int = LEAD_TOKENS) -> None:
        self.waiting = 0
        self._lead_tokens = lead_tokens
        self._shares: dict[str, Share] = {}
        self._by_served: list[tuple[int, int, str]] = []  # heap of (served, its head's handle, tenant); some outdated
        self._by_deadline: list[tuple[float, int, str]] = []  # heap of (due, its head's handle, tenant); some outdated
        self._returning: list[int] = []  # heap of handles
        self._returned: set[int] = set()  # those of them that may be looked at
        self._held: dict[str, Share] = {}
        self._last: Share | None = None  # whose last one stopped to wait last

    def share(self, tenant: str) -> Share:
        return self._shares.setdefault(tenant, Share(tenant))

    def join(self, share: Share) -> None:
        """One more of its choices waits."""
        if not share.waiting:
            share.served = max(share.served, self._level())
        share.waiting += 1
        self.waiting += 1

    def leave(self, share: Share) -> None:
        share.waiting -= 1
        self.waiting -= 1
        if not share.waiting:
            self._last = share

    def hold(self, share: Share) -> None:
        """Its choices are not looked at, until `release`; those that come back are."""
        share.is_held, self._held[share.tenant] = True, share

    def release(self, share: Share) -> None:
        share.is_held = False
        del self._held[share.tenant]
        self._announce(share)

    def put(self, share: Share, handle: int, due_s: float, *, returns: bool) -> None:
        """It may be looked at. `due_s` is infinite without a deadline of its client's."""
        if returns:
            heapq.heappush(self._returning, handle)
            self._returned.add(handle)
            return
        share.ready.add(handle)
        heapq.heappush(share.turns, (due_s, handle))
        if share.head() == (due_s, handle):
            self._announce(share)

    def take(self, share: Share, handle: int) -> int:
        """It may not be looked at any more. Returns whose turn within the tenant it is now instead; 0: nobody's."""
        self._returned.discard(handle)
        was = share.head()
        share.ready.discard(handle)
        if was is None or was[1] != handle:
            return 0
        self._announce(share)
        now = share.head()
        return now[1] if now is not None else 0

    def head(self) -> int:
        """The next one's handle; 0 for nobody."""
        while self._returning and self._returning[0] not in self._returned:
            heapq.heappop(self._returning)
        if self._returning:
            return self._returning[0]
        least = self._least_served()
        if least is None:
            return 0
        return self._most_urgent(least.served) or self._by_served[0][1]

    @property
    def returning(self) -> int:
        return len(self._returned)

    def _level(self) -> int:
        """To where a tenant is lifted that comes to wait."""
        waiting = [share.served for share in self._held.values() if share.waiting]
        least = self._least_served() or (None if waiting else self._last)
        return min([*waiting, least.served] if least is not None else waiting, default=0)

    def _announce(self, share: Share) -> None:
        head = share.head()
        if head is None or share.is_held:
            return
        due_s, handle = head
        heapq.heappush(self._by_served, (share.served, handle, share.tenant))
        if due_s < inf:
            heapq.heappush(self._by_deadline, (due_s, handle, share.tenant))

    def _least_served(self) -> Share | None:
        """The tenant whose turn it is by what it was served. An entry made before more was served is put back."""
        while self._by_served:
            served, handle, tenant = self._by_served[0]
            share = self._shares[tenant]
            head = share.head()
            if share.is_held or head is None or head[1] != handle:
                heapq.heappop(self._by_served)
            elif served < share.served:
                heapq.heapreplace(self._by_served, (share.served, handle, tenant))
            else:
                return share
        return None

    def _most_urgent(self, least: int) -> int:
        """The earliest deadline of a tenant that is not too far ahead; 0 for none."""
        ahead, found = [], 0
        while self._by_deadline and not found:
            entry = self._by_deadline[0]
            share = self._shares[entry[2]]
            if share.is_held or share.head() != entry[:2]:
                heapq.heappop(self._by_deadline)
            elif share.served - least > self._lead_tokens:
                ahead.append(heapq.heappop(self._by_deadline))
            else:
                found = entry[1]
        for entry in ahead:
            heapq.heappush(self._by_deadline, entry)
        return found
