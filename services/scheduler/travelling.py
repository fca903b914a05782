"""Blocks on their way between pool and host tier, in versions not reported yet: how long they take."""

from collections.abc import Sequence

from libs.contracts.messages import Delta, Swap
from services.scheduler.swap_cost import SwapRates


class Travelling:
    """Of one worker; the rates are the cell's."""

    def __init__(self, rates: SwapRates) -> None:
        self._rates = rates
        self._blocks: dict[int, tuple[int, int]] = {}  # version → out, in

    @property
    def expected_s(self) -> float:
        return sum(self._rates.predict_s(*blocks) for blocks in self._blocks.values())

    def note(self, delta: Delta) -> None:
        if delta.swap_outs or delta.swap_ins:
            self._blocks[delta.version] = (_blocks_of(delta.swap_outs), _blocks_of(delta.swap_ins))

    def reported(self, version: int) -> None:
        self._blocks = {of: blocks for of, blocks in self._blocks.items() if of > version}

    def dropped(self, taken_version: int) -> None:
        """What came after that version never happens."""
        self._blocks = {of: blocks for of, blocks in self._blocks.items() if of <= taken_version}


def _blocks_of(swaps: Sequence[Swap]) -> int:
    return sum(len(swap.blocks) for swap in swaps)
