"""The order in which waiting choices are looked at: suspects of a worker's death, then first come, first served.

A choice that waits for another's prefix is parked: it neither holds up the others nor is looked at until it is woken,
and then stands where it stood before.
"""

import heapq

from services.scheduler.choice import Choice
from services.scheduler.poison import runs_alone
from services.scheduler.prefix import Awaited

FIRST = 1 << 62  # more than there are handles


def rank(choice: Choice) -> int:
    """The lower, the sooner: in the queue, for chunks and for grants; the highest gives way when blocks run out.

    A preempted choice keeps its rank, so it comes before everybody who arrived after it. A suspect is first: it gives
    its worker back after a step or two.
    """
    return choice.handle - FIRST if runs_alone(choice) else choice.handle


class WaitQueue:
    """Push, pop and remove cost O(log n); `head` nothing."""

    def __init__(self) -> None:
        self._waiting: dict[int, Choice] = {}  # all of them, parked or not
        self._ready: list[tuple[int, int]] = []  # heap of (rank, handle); entries of removed choices are skipped
        self._parked: dict[int, Awaited] = {}  # handle → what it waits for

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, choice: Choice) -> bool:
        return choice.handle in self._waiting

    def push(self, choice: Choice) -> None:
        self._waiting[choice.handle] = choice
        heapq.heappush(self._ready, (rank(choice), choice.handle))

    def head(self) -> Choice | None:
        """The next one to admit, or None."""
        while self._ready:
            at, handle = self._ready[0]
            choice = self._waiting.get(handle)
            if choice is not None and handle not in self._parked and at == rank(choice):
                return choice
            heapq.heappop(self._ready)
        return None

    def ahead_of(self, choice: Choice) -> int:
        """How many wait that are looked at before it. O(n)."""
        return sum(rank(other) < rank(choice) for other in self._waiting.values())

    def remove(self, choice: Choice) -> None:
        """It waits no longer, whether admitted or given up. Removing it twice does nothing."""
        self._waiting.pop(choice.handle, None)
        awaited = self._parked.pop(choice.handle, None)
        if awaited is not None:
            awaited.unpark(choice.handle)

    def park(self, choice: Choice, awaited: Awaited) -> None:
        """Pass it over until what it waits for is committed or gone."""
        self._parked[choice.handle] = awaited
        awaited.park(choice.handle)

    def wake(self, handles: list[int]) -> None:
        """What they wait for is committed or gone (and has forgotten them)."""
        for handle in handles:
            del self._parked[handle]
            heapq.heappush(self._ready, (rank(self._waiting[handle]), handle))

    @property
    def parked(self) -> frozenset[int]:
        return frozenset(self._parked)
