"""A KV pool as the native kernels take it: bytes of whole blocks, and the fill counts."""

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from libs.contracts.kv_layout import FILL_COUNTS_OFFSET, KvLayout
from libs.engine.counted_pool import CountedPool
from libs.engine.pool_map import map_pool


class NativePool(CountedPool):
    """`blocks_NB` (uint8) are the bytes of all blocks, contiguous; what they mean is the kernels' business."""

    def __init__(
        self, layout: KvLayout, blocks_NB: npt.NDArray[np.uint8], fill_counts_N: npt.NDArray[np.uint32]
    ) -> None:
        super().__init__(layout, fill_counts_N)
        self.blocks_NB = blocks_NB

    @classmethod
    def attach(cls, source: int | Path, layout: KvLayout) -> Self:
        """Map a pool given as an open descriptor (kept by the caller) or a path. Raises ConfigError."""
        memory, blocks = map_pool(source, layout, at_hand=True)
        flat = np.frombuffer(memory, np.uint8, blocks * layout.block_bytes, layout.header_bytes(blocks))
        fills = np.frombuffer(memory, np.uint32, blocks, FILL_COUNTS_OFFSET)
        return cls(layout, flat.reshape(blocks, layout.block_bytes), fills)

    @classmethod
    def private(cls, layout: KvLayout, blocks: int) -> Self:
        """A pool in this process's own memory, all blocks fresh: for warm-up, probes and tests."""
        return cls(layout, np.zeros((blocks, layout.block_bytes), np.uint8), np.zeros(blocks, np.uint32))

    @property
    def bytes_NB(self) -> npt.NDArray[np.uint8]:
        """The bytes of all blocks."""
        return self.blocks_NB

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Make `target` hold the first `tokens` tokens of `source`, or as many as are written there.

        The whole block is copied: a tile interleaves its tokens, and nobody reads beyond the fill count.
        """
        tokens = min(tokens, int(self.fill_counts_N[source]))
        self.fill_counts_N[target] = 0
        self.blocks_NB[target] = self.blocks_NB[source]
        self.fill_counts_N[target] = tokens
