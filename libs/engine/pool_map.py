"""Maps the shared memory of a KV pool that somebody else created and owns. No torch here."""

import mmap
import os
from pathlib import Path

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import FIXED_HEADER, KvLayout


def map_pool(source: int | Path, layout: KvLayout) -> tuple[mmap.mmap, int]:
    """The pool's memory, header included, and its number of blocks.

    Args:
        source: an open descriptor (kept by the caller) or a path.

    Raises: ConfigError when it is no pool, has another layout, or is smaller than its header says.
    """
    try:
        if isinstance(source, Path):
            with source.open("r+b") as file:
                return _map(file.fileno(), layout)
        return _map(source, layout)
    except (OSError, ValueError) as error:
        raise ConfigError(f"KV pool {source}: {error}") from error


def _map(descriptor: int, layout: KvLayout) -> tuple[mmap.mmap, int]:
    file_bytes = os.fstat(descriptor).st_size
    header = os.pread(descriptor, FIXED_HEADER.size, 0)
    if len(header) < FIXED_HEADER.size:
        raise ValueError("shorter than a header")
    blocks = layout.check_header(header, file_bytes)
    return mmap.mmap(descriptor, layout.pool_bytes(blocks)), blocks
