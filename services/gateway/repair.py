"""When to ask the scheduler for tokens that did not come. Pure: the time is a parameter."""

GAP_S = 0.1  # a token behind the gap is here, so the frames between were lost or are just being overtaken
SILENCE_S = 0.5
SILENCE_IN_PACES = 10
FIRST_PACE_S = 0.5  # before the second frame: a queued prompt is silent for long and rightly so
LONGEST_PAUSE_S = 8.0
PACE_SMOOTHING = 0.2


class Repair:
    """Watches one choice's frames. Mutable, owned by that choice."""

    def __init__(self, now_s: float) -> None:
        self._heard_s = now_s
        self._pace_s = FIRST_PACE_S  # smoothed time between two frames
        self._frames = 0
        self._gap_since_s: float | None = None
        self._not_before_s = now_s
        self._fruitless = 0
        self._asking = False

    def heard(self, now_s: float) -> None:
        """New tokens came."""
        spent_s = now_s - self._heard_s
        if self._frames == 1:
            self._pace_s = spent_s
        elif self._frames:
            self._pace_s += PACE_SMOOTHING * (spent_s - self._pace_s)
        self._frames += 1
        self._heard_s = self._not_before_s = now_s
        self._gap_since_s = None
        self._fruitless = 0

    def hurry(self) -> None:
        """Do not wait to see whether tokens are missing: it is known, or likely."""
        self._gap_since_s = float("-inf")

    def due(self, now_s: float, *, has_gap: bool) -> bool:
        """Whether to ask now. Ask again only after `asked` and `answered`."""
        if has_gap and self._gap_since_s is None:
            self._gap_since_s = now_s
        if self._asking or now_s < self._not_before_s:
            return False
        if self._gap_since_s is not None:
            return now_s - self._gap_since_s >= GAP_S
        return now_s - self._heard_s >= max(SILENCE_S, SILENCE_IN_PACES * self._pace_s)

    def asked(self) -> None:
        self._asking = True

    def answered(self, now_s: float, *, has_gap: bool) -> None:
        """An answer came, or none in time. What it brought was reported by `heard` before."""
        self._asking = False
        pause_s = min(LONGEST_PAUSE_S, (GAP_S if has_gap else SILENCE_S) * 2.0**self._fruitless)
        self._not_before_s = max(self._not_before_s, now_s + pause_s)
        self._fruitless += 1
