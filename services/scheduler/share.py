"""What a tenant has been served in one priority class, and which of its choices wait there."""

import heapq
from dataclasses import dataclass, field

INPUT_WEIGHT, OUTPUT_WEIGHT = 1, 2  # a generated token costs about what two of a prompt do; the paper's weights


@dataclass(slots=True, eq=False)
class Share:
    """Mutable; `waiting` counts its choices that wait, `turns` is a heap of those that may be looked at.

    An entry whose handle is not among `ready` is one that has gone.
    """

    tenant: str
    served: int = 0  # weighted tokens: the virtual counter
    waiting: int = 0
    is_held: bool = False  # none of them is looked at: it has its part of the cell
    ready: set[int] = field(default_factory=set)  # handles
    turns: list[tuple[float, int]] = field(default_factory=list)  # (due, handle)

    def prefilled(self, tokens: int) -> None:
        """So many tokens of a prompt are computed for it; what was cached costs nothing."""
        self.served += INPUT_WEIGHT * tokens

    def generated(self, tokens: int) -> None:
        self.served += OUTPUT_WEIGHT * tokens

    def head(self) -> tuple[float, int] | None:
        """Its own next one: the earliest deadline, then the oldest."""
        while self.turns and self.turns[0][1] not in self.ready:
            heapq.heappop(self.turns)
        return self.turns[0] if self.turns else None
