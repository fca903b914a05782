"""Whether one more request would wait for too long: by how many wait here, and how fast they have been starting. Pure.

Each gateway sees its own share of the requests and its own share of the starts, so their ratio is the common wait.
"""

from libs.contracts.errors import Overloaded

KEPT = 0.95  # of what is known, at each start: about the last twenty count


class Crowded(Overloaded):
    """Refused at the door. `retry_after_s` is when there may be room."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Crowd:
    """Mutable, owned by the hub. `waiting` counts requests without a token; `short_queue` of them always may wait.

    Those find room in one batch, and the pace is known the least while few wait.
    """

    def __init__(self, *, max_waiting: int, max_wait_s: float, short_queue: int) -> None:
        self._max_waiting, self._max_wait_s, self._short_queue = max_waiting, max_wait_s, short_queue
        self._starts = self._spent_s = 0.0  # both fade
        self._mark_s = 0.0  # the last start, or when somebody began to wait after there was nobody

    def check(self, waiting: int, now_s: float) -> None:
        """Raises Crowded when one more would be too many, or would wait for too long."""
        wait_s = self.wait_s(waiting, now_s)
        if waiting >= self._max_waiting or (waiting >= self._short_queue and wait_s > self._max_wait_s):
            raise Crowded("too many requests are waiting, try again later", wait_s)

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
