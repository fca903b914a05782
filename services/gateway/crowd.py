"""Whether one more request would wait for too long: by who waits here, and how fast they have been starting. Pure.

Each gateway sees its own share of the requests and its own share of the starts, so their ratio is the common wait.
"""

from collections import Counter
from collections.abc import Collection
from math import inf
from typing import NamedTuple

from libs.contracts.errors import Overloaded

KEPT = 0.95  # of what is known, at each start: about the last twenty count


class Crowded(Overloaded):
    """Refused at the door. `retry_after_s` is when there may be room."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Standing(NamedTuple):
    """What a request's place among those who wait is made of."""

    tenant: str
    priority: int  # the lower, the earlier
    due_s: float = inf  # on the clock of `now_s`; infinite where its client set no deadline


def ahead_of(one: Standing, waiting: Collection[Standing]) -> int:
    """How many of those who wait the scheduler starts before one more.

    All of earlier classes; in its own the earlier deadlines, and as tenants take turns, of each other tenant no more
    than it has itself.
    """
    earlier = sum(other.priority < one.priority for other in waiting)
    own = [other for other in waiting if other.priority == one.priority]
    if one.due_s < inf:
        return earlier + sum(other.due_s <= one.due_s for other in own)
    timed = sum(other.due_s < inf for other in own)
    untimed = Counter(other.tenant for other in own if other.due_s == inf)
    mine = untimed.pop(one.tenant, 0)
    return earlier + timed + mine + sum(min(count, mine + 1) for count in untimed.values())


class Crowd:
    """Mutable, owned by the hub. `short_queue` requests without a token always may wait.

    Those find room in one batch, and the pace is known the least while few wait.
    """

    def __init__(self, *, max_waiting: int, max_wait_s: float, short_queue: int) -> None:
        self._max_waiting, self._max_wait_s, self._short_queue = max_waiting, max_wait_s, short_queue
        self._starts = self._spent_s = 0.0  # both fade
        self._mark_s = 0.0  # the last start, or when somebody began to wait after there was nobody

    def check(self, one: Standing, waiting: Collection[Standing], now_s: float) -> None:
        """Raises Crowded when one more would be too many, or would wait for too long."""
        ahead = ahead_of(one, waiting)
        wait_s = self.wait_s(ahead, now_s)
        if now_s + wait_s > one.due_s:
            raise Crowded("it would wait for longer than its timeout, try again later", wait_s)
        if self._is_full(one, waiting) or (ahead >= self._short_queue and wait_s > self._max_wait_s):
            raise Crowded("too many requests are waiting, try again later", wait_s)

    def _is_full(self, one: Standing, waiting: Collection[Standing]) -> bool:
        """Beyond the limit there is room for a tenant that has less than an equal part of it: a flood fills its own."""
        if len(waiting) < self._max_waiting:
            return False
        tenants = Counter(other.tenant for other in waiting)
        mine = tenants.pop(one.tenant, 0)
        return mine >= self._max_waiting // (len(tenants) + 1)

    def wait_s(self, waiting: int, now_s: float) -> float:
        """How long one more request would wait; 0 while nothing is known."""
        if not waiting or not self._starts:
            return 0.0
        # The time since the last start counts as soon as it makes the pace slower: perhaps nothing starts at all.
        pace_s = max(self._spent_s / self._starts, (self._spent_s + now_s - self._mark_s) / (self._starts + 1))
        return (waiting + 1) * pace_s

    def joined(self, waiting: int, now_s: float) -> None:
        """One more waits, beside `waiting` others."""
        if not waiting:
            self._mark_s = now_s

    def started(self, now_s: float) -> None:
        """One that waited has its first token."""
        self._spent_s = KEPT * self._spent_s + now_s - self._mark_s
        self._starts = KEPT * self._starts + 1
        self._mark_s = now_s
