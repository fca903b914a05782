"""A KV pool as the torch kernels take it: its blocks as one tensor, its fill counts as one array."""

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from kernels.copy_block import copy_block
from libs.contracts.kv_layout import FILL_COUNTS_OFFSET, KvLayout
from libs.engine.counted_pool import CountedPool
from libs.engine.pool_map import map_pool

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class KvPool(CountedPool):
    """A pool that somebody else created and owns; it lives as long as anything made from it.

    `kv_NLCHTD` is the contiguous tensor of all blocks.
    """

    def __init__(self, layout: KvLayout, kv_NLCHTD: torch.Tensor, fill_counts_N: npt.NDArray[np.uint32]) -> None:
        super().__init__(layout, fill_counts_N)
        self.kv_NLCHTD = kv_NLCHTD
        self._bytes_NB: npt.NDArray[np.uint8] = kv_NLCHTD.view(len(fill_counts_N), -1).view(torch.uint8).numpy()

    @classmethod
    def attach(cls, source: int | Path, layout: KvLayout) -> Self:
        """Map a pool given as an open descriptor (kept by the caller) or a path.

        Raises: ConfigError when it is no pool, has another layout, or is smaller than its header says.
        """
        memory, blocks = map_pool(source, layout, at_hand=True)
        shape = (blocks, layout.layers, 2, layout.kv_heads, layout.block_tokens, layout.head_dim)
        dtype = TORCH_DTYPES[layout.dtype]
        flat = torch.frombuffer(
            memory, dtype=dtype, offset=layout.header_bytes(blocks), count=blocks * layout.block_bytes // dtype.itemsize
        )
        fills = np.frombuffer(memory, dtype=np.uint32, offset=FILL_COUNTS_OFFSET, count=blocks)
        return cls(layout, flat.view(shape), fills)

    @classmethod
    def private(cls, layout: KvLayout, blocks: int) -> Self:
        """A pool in this process's own memory, all blocks fresh: for warm-up, probes and tests."""
        shape = (blocks, layout.layers, 2, layout.kv_heads, layout.block_tokens, layout.head_dim)
        return cls(layout, torch.zeros(shape, dtype=TORCH_DTYPES[layout.dtype]), np.zeros(blocks, np.uint32))

    @property
    def bytes_NB(self) -> npt.NDArray[np.uint8]:
        """The bytes of all blocks: the memory of `kv_NLCHTD`."""
        return self._bytes_NB

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Make `target` hold the first `tokens` tokens of `source`, or as many as are written there."""
        tokens = min(tokens, int(self.fill_counts_N[source]))
        self.fill_counts_N[target] = 0
        copy_block(self.kv_NLCHTD, source, target, tokens)
        self.fill_counts_N[target] = tokens
