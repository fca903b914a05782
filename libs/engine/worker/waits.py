"""Why rows do not advance: each wait is told once when it begins and once when it ends. Pure."""

from libs.contracts.messages import RowWait
from libs.engine.worker.held import Held


class Waits:
    """What is to be told with the next report."""

    def __init__(self) -> None:
        self._untold: list[RowWait] = []

    def __bool__(self) -> bool:
        return bool(self._untold)

    def note(self, held: Held, reason: str, now_ns: int) -> None:
        """`held` waits for this reason from now on; "" is for none."""
        if reason == held.wait:
            return
        sequence, epoch = held.resident.sequence, held.resident.epoch
        if held.wait:
            self._untold.append(RowWait(sequence, epoch, held.wait, max(1, now_ns - held.wait_ns)))
        if reason:
            self._untold.append(RowWait(sequence, epoch, reason, 0))
        held.wait, held.wait_ns = reason, now_ns

    def take(self) -> tuple[RowWait, ...]:
        untold, self._untold = tuple(self._untold), []
        return untold
