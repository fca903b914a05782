"""The most that something was lately. Plain values, of times that are told."""

from dataclasses import dataclass

WINDOW_S = 30.0


@dataclass(slots=True)
class Lately:
    """Of the last one to two windows."""

    since_s: float  # when the present window began
    now: int = 0
    before: int = 0  # in the window before it

    def note(self, value: int, now_s: float) -> None:
        self._move(now_s)
        self.now = max(self.now, value)

    def most(self, now_s: float) -> int:
        self._move(now_s)
        return max(self.now, self.before)

    def _move(self, now_s: float) -> None:
        windows = int((now_s - self.since_s) / WINDOW_S)
        if windows:
            self.before = self.now if windows == 1 else 0
            self.now, self.since_s = 0, self.since_s + windows * WINDOW_S
