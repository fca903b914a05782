"""A request's waits as spans below its span here: one for each reason that it waited for, in turn.

Beside the core, as the decision records are: it looks at what a turn noted, and changes nothing.
"""

from collections.abc import Callable, Sequence

from libs.contracts import conventions as names
from libs.contracts.messages import StepResult
from libs.runtime.tracing import is_exported, leaf
from services.scheduler.choice import Choice, Noted
from services.scheduler.events import Command, Event
from services.scheduler.reasons import WAITS, Reason


class WaitSpans:
    """`on_turn` is one of the Loop's."""

    def __init__(self, to_ns: Callable[[float], int]) -> None:
        """`to_ns` makes a decision's time one of the monotonic clock."""
        self._to_ns = to_ns
        self._waiting: dict[Choice, tuple[Reason, int]] = {}  # what an exported request waits for, and since when
        self._handed: dict[int, tuple[Choice, int]] = {}  # handle → handed over, and not heard of since

    def on_turn(
        self, now_s: float, events: Sequence[Event], commands: Sequence[Command], journal: Sequence[Noted]
    ) -> None:
        if self._handed:
            for event in events:
                if isinstance(event, StepResult):
                    self._taken(event)
        for choice, reason in journal:
            if is_exported(choice.traceparent):
                self._changed(choice, reason, self._to_ns(now_s))

    def _changed(self, choice: Choice, reason: Reason, at_ns: int) -> None:
        self._handed.pop(choice.handle, None)
        waited_for, since_ns = self._waiting.pop(choice, (reason, at_ns))
        if at_ns > since_ns:
            leaf(names.WAIT + waited_for, choice.traceparent, since_ns, at_ns)
        if reason in WAITS:
            self._waiting[choice] = (reason, at_ns)
        elif reason is Reason.HANDED_OVER:
            self._handed[choice.handle] = (choice, at_ns)

    def _taken(self, result: StepResult) -> None:
        """A hand-over lasts until the first step on the other worker begins."""
        for row in result.rows:
            choice, since_ns = self._handed.pop(row.sequence, (None, 0))
            if choice is not None and result.started_ns > since_ns:
                leaf(names.HAND_OVER_ORDER, choice.traceparent, since_ns, result.started_ns)
