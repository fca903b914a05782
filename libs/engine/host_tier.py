"""The host tier of a KV pool: blocks that rest elsewhere in the same layout; each travels as one range of bytes."""

import time
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from libs.contracts.kv_layout import FILL_COUNTS_OFFSET
from libs.engine.counted_pool import CountedPool
from libs.engine.pool_map import map_pool


class MappedTier:
    """Memory or a file that somebody else created and owns, beside one pool of the same layout.

    `bytes_per_s` above 0 makes every copy take at least so long: a slow device, for tests and benches.
    """

    def __init__(
        self,
        pool: CountedPool,
        blocks_NB: npt.NDArray[np.uint8],
        fill_counts_N: npt.NDArray[np.uint32],
        bytes_per_s: float = 0.0,
    ) -> None:
        self._pool, self._blocks_NB, self._fill_counts_N = pool, blocks_NB, fill_counts_N
        self._block_s = pool.layout.block_bytes / bytes_per_s if bytes_per_s else 0.0

    @classmethod
    def attach(cls, source: int | Path, pool: CountedPool, *, bytes_per_s: float = 0.0) -> Self:
        """Map a tier given as an open descriptor (kept by the caller) or a path.

        Raises: ConfigError when it is none, has another layout than `pool`, or is smaller than its header says.
        """
        layout = pool.layout
        memory, blocks = map_pool(source, layout, at_hand=False)
        flat = np.frombuffer(memory, np.uint8, blocks * layout.block_bytes, layout.header_bytes(blocks))
        fills = np.frombuffer(memory, np.uint32, blocks, FILL_COUNTS_OFFSET)
        return cls(pool, flat.reshape(blocks, layout.block_bytes), fills, bytes_per_s)

    @property
    def blocks(self) -> int:
        return len(self._fill_counts_N)

    def swap_out(self, block: int, host_block: int) -> None:
        """Copy a block of the pool into one of the tier."""
        started_s = time.monotonic()
        self._blocks_NB[host_block] = self._pool.bytes_NB[block]
        self._fill_counts_N[host_block] = self._pool.fill_counts_N[block]
        self._take_time(started_s)

    def swap_in(self, block: int, host_block: int) -> None:
        """Copy a block of the tier into one of the pool, which is then filled as far as it was."""
        started_s = time.monotonic()
        self._pool.fill_counts_N[block] = 0
        self._pool.bytes_NB[block] = self._blocks_NB[host_block]
        self._pool.fill_counts_N[block] = self._fill_counts_N[host_block]
        self._take_time(started_s)

    def _take_time(self, started_s: float) -> None:
        if self._block_s:
            time.sleep(max(0.0, started_s + self._block_s - time.monotonic()))
