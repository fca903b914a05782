"""Attaches to a KV pool in shared memory: its blocks as one tensor, its fill counts as one array."""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from kernels.copy_block import copy_block
from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import FILL_COUNTS_OFFSET, FIXED_HEADER, KvLayout, blocks_for

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class KvPool:
    """A pool that somebody else created and owns; it lives as long as anything made from it.

    `kv_NLCHTD` is the contiguous tensor of all blocks. `fill_counts_N` (uint32) tells how many tokens of each block are
    written: readers in other processes trust what is below it, so it is stored after the writes it covers. On x86 plain
    stores keep their order, and torch's threads have joined before this code runs.
    """

    def __init__(self, layout: KvLayout, kv_NLCHTD: torch.Tensor, fill_counts_N: npt.NDArray[np.uint32]) -> None:
        self.layout = layout
        self.kv_NLCHTD = kv_NLCHTD
        self.fill_counts_N = fill_counts_N

    @classmethod
    def attach(cls, source: int | Path, layout: KvLayout) -> Self:
        """Map a pool given as an open descriptor (kept by the caller) or a path.

        Raises: ConfigError when it is no pool, has another layout, or is smaller than its header says.
        """
        try:
            if isinstance(source, Path):
                with source.open("r+b") as file:
                    return cls._map(file.fileno(), layout)
            return cls._map(source, layout)
        except (OSError, ValueError) as error:
            raise ConfigError(f"KV pool {source}: {error}") from error

    @classmethod
    def _map(cls, descriptor: int, layout: KvLayout) -> Self:
        file_bytes = os.fstat(descriptor).st_size
        header = os.pread(descriptor, FIXED_HEADER.size, 0)
        if len(header) < FIXED_HEADER.size:
            raise ValueError("shorter than a header")
        blocks = layout.check_header(header, file_bytes)
        memory = mmap.mmap(descriptor, layout.pool_bytes(blocks))
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

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Make `target` hold the first `tokens` tokens of `source`, or as many as are written there."""
        tokens = min(tokens, int(self.fill_counts_N[source]))
        self.fill_counts_N[target] = 0
        copy_block(self.kv_NLCHTD, source, target, tokens)
        self.fill_counts_N[target] = tokens
