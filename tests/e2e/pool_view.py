"""The KV pool of a running stack as its supervisor maps it: copies of all blocks, and which of them differ."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from libs.contracts.kv_layout import FILL_COUNTS_OFFSET, FIXED_HEADER


class PoolView:
    """Read only; blocks and fill counts of the pool of the process `supervisor`."""

    def __init__(self, supervisor: int) -> None:
        descriptor = os.open(_pool_file(supervisor), os.O_RDONLY)
        try:
            self._memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        _, _, self._header_bytes, self.blocks, _ = FIXED_HEADER.unpack_from(self._memory)
        self._block_bytes = (len(self._memory) - self._header_bytes) // self.blocks

    def copy(self) -> bytes:
        """All of it, at this moment."""
        return self._memory[:]

    def changed(self, before: bytes, after: bytes) -> Iterator[int]:
        """Blocks whose content or fill count is another one."""
        for block in range(self.blocks):
            count, start = FILL_COUNTS_OFFSET + 4 * block, self._header_bytes + self._block_bytes * block
            parts = (slice(count, count + 4), slice(start, start + self._block_bytes))
            if any(before[part] != after[part] for part in parts):
                yield block


def _pool_file(pid: int) -> Path:
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    return next(path for path in descriptors if os.readlink(path).startswith("/memfd:kv-pool"))
