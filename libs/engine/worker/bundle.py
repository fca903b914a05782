"""Which step results wait for company on their way to the scheduler. Pure.

A plain decode step asks nothing of the scheduler: it may travel with the next ones. Whatever the scheduler acts on goes
at once, and takes along what waits, so the order of steps is kept. The clock is that of the steps.
"""

from libs.contracts.messages import StepResult

MOST_RESULTS = 8
LONGEST_WAIT_NS = 250_000_000


class Bundle:
    """Results not yet sent, oldest first."""

    def __init__(self) -> None:
        self._waiting: list[StepResult] = []

    def add(self, result: StepResult) -> tuple[StepResult, ...]:
        """What must go now, this result included; empty while it may wait."""
        self._waiting.append(result)
        waited_ns = result.ended_ns - self._waiting[0].ended_ns
        if is_plain(result) and len(self._waiting) < MOST_RESULTS and waited_ns < LONGEST_WAIT_NS:
            return ()
        return self.take()

    def take(self) -> tuple[StepResult, ...]:
        """Everything that waits; it no longer does."""
        waiting, self._waiting = self._waiting, []
        return tuple(waiting)


def is_plain(result: StepResult) -> bool:
    """One token a row and nothing else: no chunk, end, stop, wait, removal, copy, swap or find."""
    if result.removed or result.found or result.waits or result.copies_done or result.swapped:
        return False
    if result.batch_tokens != len(result.rows):
        return False
    return bool(result.rows) and not any(row.end or row.at_until for row in result.rows)
