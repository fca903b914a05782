"""StepResults that the scheduler has not acknowledged: sent again after re-attaching. Pure."""

from collections import deque

from libs.contracts.messages import StepResult


class Unacked:
    """Oldest first. Bounded by the grants: a worker out of contact steps only as far as they reach."""

    def __init__(self) -> None:
        self._results: deque[StepResult] = deque()

    def __len__(self) -> int:
        return len(self._results)

    def keep(self, result: StepResult) -> None:
        self._results.append(result)

    def ack(self, step_number: int) -> None:
        """Forget everything up to and with this step. Repeating it does nothing."""
        while self._results and self._results[0].step_number <= step_number:
            self._results.popleft()

    def pending(self) -> tuple[StepResult, ...]:
        return tuple(self._results)
