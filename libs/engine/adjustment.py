"""What one sequence's parameters do to its logits before a token is drawn, kept from step to step. No torch here.

Axes: B biased ids, W 32-bit words of the vocabulary.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


class SeenIds:
    """Which ids a sequence has, and how often its answer has each; one more token costs a constant time."""

    def __init__(self, prompt_ids: Iterable[int], generated_ids: Iterable[int]) -> None:
        self._at = {token_id: at for at, token_id in enumerate(dict.fromkeys(prompt_ids))}
        self.ids = array("i", self._at)
        self.counts = array("i", bytes(4 * len(self.ids)))
        for token_id in generated_ids:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        """The answer has it once more."""
        at = self._at.setdefault(token_id, len(self.ids))
        if at == len(self.ids):
            self.ids.append(token_id)
            self.counts.append(0)
        self.counts[at] += 1


@dataclass(slots=True, eq=False)
class Adjustment:
    """Read by an engine in a step, changed by its owner between steps; docs/numerics.md has the order of operations.

    A mask has a bit an id, 0 where it is banned. `allowed_W` stays; `mask_W` may be filled anew for each step, even by
    another thread while the step runs: then `mask_ready`, of one element, is 0 before the step and is set to 1 when it
    is filled, whatever happens, since the step waits for it.
    """

    seen: SeenIds | None = None
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    bias_ids_B: npt.NDArray[np.int32] | None = None
    bias_B: npt.NDArray[np.float32] | None = None
    allowed_W: npt.NDArray[np.uint32] | None = None
    mask_W: npt.NDArray[np.uint32] | None = None
    mask_ready: npt.NDArray[np.int32] | None = None
    struct: object = None  # an engine's own form of it, kept where nothing of it moves between steps
