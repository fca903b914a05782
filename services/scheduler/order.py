"""The order in which waiting choices are looked at, and that in which running ones keep their memory.

Suspects of a worker's death come first, then priority classes, the lowest number first, and in a class whoever was
admitted before, the earliest deadline, fair share between tenants, arrival (fair_queue.py). A choice that waits for
another's prefix is parked: it neither holds up the others nor is looked at until it is woken, and then stands where it
stood before.
"""

import heapq

from services.scheduler.choice import Choice
from services.scheduler.fair_queue import LEAD_TOKENS, FairQueue
from services.scheduler.poison import runs_alone
from services.scheduler.prefix import Awaited
from services.scheduler.reasons import PLACES, Reason

RELATIVE = PLACES | {Reason.TENANT_FULL}  # reasons that are over when others go or come

Rank = tuple[bool, int, int]


def rank(choice: Choice) -> Rank:
    """The lower, the sooner it is granted blocks; the highest gives way when they run out.

    It never changes, so whoever has the lowest always gets to its end. A suspect is first: it gives its worker back
    after a step or two.
    """
    return (not runs_alone(choice), choice.sequence.priority, choice.handle)


class WaitQueue:
    """Push, pop and remove cost O(log n)."""

    def __init__(self, *, lead_tokens: int = LEAD_TOKENS) -> None:
        self._lead_tokens = lead_tokens
        self._waiting: dict[int, Choice] = {}  # all of them, parked or not
        self._parked: dict[int, Awaited] = {}  # handle → what it waits for
        self._suspects: list[int] = []  # heap of handles
        self._classes: dict[int, FairQueue] = {}
        self._listed: list[int] = []  # heap of classes in which somebody may be ready
        self._unlisted: set[int] = set()  # the other classes
        self._held: dict[tuple[int, str], Choice] = {}  # class and tenant → one of those that are passed over
        self.tenants: set[str] = set()  # all that ever came
        self._moved: dict[int, Choice] = {}  # came, or had its turn within its tenant come, since they were asked for
        self._front = 0  # the handle that was the head when they were

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, choice: Choice) -> bool:
        return choice.handle in self._waiting

    def push(self, choice: Choice) -> None:
        fair = self._class_of(choice)
        choice.share = fair.share(choice.sequence.tenant)
        self.tenants.add(choice.sequence.tenant)
        self._waiting[choice.handle] = self._moved[choice.handle] = choice
        fair.join(choice.share)
        self._put(choice)

    def head(self) -> Choice | None:
        """The next one to admit, or None."""
        while self._suspects:
            choice = self._waiting.get(self._suspects[0])
            if choice is not None and choice.handle not in self._parked:
                return choice
            heapq.heappop(self._suspects)
        while self._listed:
            handle = self._classes[self._listed[0]].head()
            if handle:
                return self._waiting[handle]
            self._unlisted.add(heapq.heappop(self._listed))
        return None

    def ahead_of(self, choice: Choice) -> int:
        """How many wait that are, as far as its own tenant and better classes go, looked at before it."""
        if choice is self.head():
            return 0
        priority, fair = choice.sequence.priority, self._class_of(choice)
        better = sum(other.waiting for at, other in self._classes.items() if at < priority)
        if choice.was_admitted:
            return better + max(fair.returning - 1, 0)
        return better + max(choice.share.waiting - 1, fair.returning)

    def remove(self, choice: Choice) -> None:
        """It waits no longer, whether admitted or given up. Removing it twice does nothing."""
        if self._waiting.pop(choice.handle, None) is None:
            return
        self._moved.pop(choice.handle, None)
        awaited = self._parked.pop(choice.handle, None)
        if awaited is not None:
            awaited.unpark(choice.handle)
        self._take(choice)
        self._class_of(choice).leave(choice.share)

    def park(self, choice: Choice, awaited: Awaited) -> None:
        """Pass it over until what it waits for is committed or gone."""
        self._parked[choice.handle] = awaited
        awaited.park(choice.handle)
        self._take(choice)

    def wake(self, handles: list[int]) -> None:
        """What they wait for is committed or gone (and has forgotten them)."""
        for handle in handles:
            del self._parked[handle]
            self._put(self._waiting[handle])

    def hold(self, choice: Choice) -> None:
        """Pass over what its tenant has waiting in its class, but for those who come back."""
        self._class_of(choice).hold(choice.share)
        self._held[choice.sequence.priority, choice.sequence.tenant] = choice

    def held(self) -> list[Choice]:
        """One choice, perhaps gone by now, of each tenant and class that are passed over."""
        return list(self._held.values())

    def release(self, choice: Choice) -> None:
        """Look again at what is waiting of its tenant in its class."""
        del self._held[choice.sequence.priority, choice.sequence.tenant]
        self._class_of(choice).release(choice.share)
        self._list(choice.sequence.priority)
        if choice in self:
            self._moved[choice.handle] = choice

    def take_misplaced(self) -> list[tuple[Choice, Reason]]:
        """Who came to its place in the queue since the last time, or lost the first one, and why it is not the next."""
        head, moved, front = self.head(), self._moved, self._waiting.get(self._front)
        self._moved, self._front = {}, head.handle if head is not None else 0
        places = [(choice, self._behind(choice, head)) for choice in moved.values() if self._is_behind(choice, head)]
        if front is not None and self._is_behind(front, head):
            overtaken = self._behind(front, head)
            places += [(front, overtaken)] if overtaken is not Reason.BEHIND_OLDER else []
        return [(choice, place) for choice, place in places if choice is front or choice.reason in RELATIVE]

    @property
    def parked(self) -> frozenset[int]:
        return frozenset(self._parked)

    def _is_behind(self, choice: Choice, head: Choice | None) -> bool:
        return choice is not head and not choice.share.is_held and choice.handle not in self._parked

    def _behind(self, choice: Choice, head: Choice | None) -> Reason:
        """What puts `head` before it."""
        if head is None:
            return choice.reason
        if head.sequence.priority < choice.sequence.priority:
            return Reason.BEHIND_PRIORITY
        if runs_alone(head) or head.was_admitted:
            return Reason.BEHIND_OLDER
        if head.due_s < choice.due_s and (head.share is choice.share or head.share.served > choice.share.served):
            return Reason.BEHIND_DEADLINE
        if head.share is not choice.share and head.share.served < choice.share.served:
            return Reason.BEHIND_SHARE
        return Reason.BEHIND_DEADLINE if head.due_s < choice.due_s else Reason.BEHIND_OLDER

    def _class_of(self, choice: Choice) -> FairQueue:
        priority = choice.sequence.priority
        if priority not in self._classes:
            self._classes[priority] = FairQueue(self._lead_tokens)
            self._unlisted.add(priority)
        return self._classes[priority]

    def _put(self, choice: Choice) -> None:
        if runs_alone(choice):
            heapq.heappush(self._suspects, choice.handle)
            return
        fair = self._class_of(choice)
        self._list(choice.sequence.priority)
        fair.put(choice.share, choice.handle, choice.due_s, returns=choice.was_admitted)

    def _list(self, priority: int) -> None:
        if priority in self._unlisted:
            self._unlisted.remove(priority)
            heapq.heappush(self._listed, priority)

    def _take(self, choice: Choice) -> None:
        follower = self._class_of(choice).take(choice.share, choice.handle)
        if follower:
            self._moved[follower] = self._waiting[follower]
