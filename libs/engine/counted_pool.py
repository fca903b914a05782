"""The half of a KV pool that is the same however its blocks lie in memory: how many tokens of each are written."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from libs.contracts.kv_layout import KvLayout, blocks_for


class CountedPool(ABC):
    """A pool without its bytes.

    `fill_counts_N` (uint32): readers in other processes trust what is below a count, so it is stored after the writes
    it covers. On x86 plain stores keep their order, and the threads of a step have joined before a count is stored.
    """

    def __init__(self, layout: KvLayout, fill_counts_N: npt.NDArray[np.uint32]) -> None:
        self.layout = layout
        self.fill_counts_N = fill_counts_N

    @classmethod
    @abstractmethod
    def attach(cls, source: int | Path, layout: KvLayout) -> Self:
        """Map a pool that somebody else created, given as an open descriptor (kept by the caller) or a path.

        Raises: ConfigError when it is no pool, has another layout, or is smaller than its header says.
        """

    @classmethod
    @abstractmethod
    def private(cls, layout: KvLayout, blocks: int) -> Self:
        """A pool in this process's own memory, all blocks fresh: for warm-up, probes and tests."""

    @property
    @abstractmethod
    def bytes_NB(self) -> npt.NDArray[np.uint8]:
        """The bytes of all blocks, contiguous, to be read and written as they are."""

    @property
    def blocks(self) -> int:
        return len(self.fill_counts_N)

    def reset(self, block_ids: Sequence[int]) -> None:
        """Mark blocks as fresh; their bytes stay and are never read."""
        self.fill_counts_N[list(block_ids)] = 0

    def is_committed(self, block_table: Sequence[int], tokens: int) -> bool:
        """Whether the first `tokens` tokens of a table are written."""
        block_tokens = self.layout.block_tokens
        used = blocks_for(tokens, block_tokens)
        if used > len(block_table):
            return False
        needed = np.minimum(tokens - block_tokens * np.arange(used), block_tokens)
        return bool((self.fill_counts_N[list(block_table[:used])] >= needed).all())

    def publish(self, block_table: Sequence[int], base: int, tokens: int) -> None:
        """Store the fill counts of a table whose positions base … base + tokens − 1 have been written."""
        block_tokens = self.layout.block_tokens
        for index in range(base // block_tokens, blocks_for(base + tokens, block_tokens)):
            self.fill_counts_N[block_table[index]] = min(base + tokens - index * block_tokens, block_tokens)

    @abstractmethod
    def copy(self, source: int, target: int, tokens: int) -> None:
        """Make `target` hold the first `tokens` tokens of `source`, or as many as are written there."""
