"""Choices whose blocks rest in the host tier: they resume before anybody is admitted, for they were there before."""

from collections.abc import Iterator

from services.scheduler.choice import Choice
from services.scheduler.order import rank


class SwapQueue:
    """In the order of their ranks. There are never more of them than the tier has room for."""

    def __init__(self) -> None:
        self._waiting: dict[int, Choice] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, choice: Choice) -> bool:
        return choice.handle in self._waiting

    def __iter__(self) -> Iterator[Choice]:
        return iter(self._waiting.values())

    def push(self, choice: Choice) -> None:
        self._waiting[choice.handle] = choice

    def head(self) -> Choice | None:
        """The next one to resume, or None."""
        return min(self._waiting.values(), key=rank, default=None)

    def remove(self, choice: Choice) -> None:
        """It resumes, or waits no longer. Removing it twice does nothing."""
        self._waiting.pop(choice.handle, None)
