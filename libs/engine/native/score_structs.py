"""What is to be scored of a prompt in the form that the native kernels take, and their answer back."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from kernels.native.structs import HrScore, HrTop
from libs.contracts.messages import PromptScores
from libs.engine.native.packed_file import address

SCORE: Final = np.dtype(HrScore)
TOP: Final = np.dtype(HrTop)


class ScoreStructs:
    """One HrScore an id, and room for the likeliest in its place."""

    def __init__(self, ids: Sequence[int], tops: int) -> None:
        self._scores = np.zeros(len(ids), SCORE)
        self._tops = np.zeros((len(ids), tops), TOP)
        self._scores["id"], self._scores["top_count"] = ids, tops
        self._scores["top"] = address(self._tops) + TOP.itemsize * tops * np.arange(len(ids))

    @property
    def address(self) -> int:
        return address(self._scores)

    def read(self, first: int) -> PromptScores:
        """What the kernels wrote; the first id is the prompt's at index `first`."""
        is_there = self._tops["id"] >= 0  # a vocabulary may have fewer
        return PromptScores(
            first,
            tuple(self._scores["logprob"].tolist()),
            tuple(self._scores["rank"].tolist()),
            tuple(self._tops["id"][is_there].tolist()),
            tuple(self._tops["logprob"][is_there].tolist()),
        )
