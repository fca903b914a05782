"""A file in which a host keeps a model as its kernels read it, so that its processes share one copy.

Layout: a header, padded to a page, then parts at multiples of 4,096 bytes. The header is a function of what the file is
for and of what it holds, so a reader knows all of its bytes beforehand and trusts a file only when they are equal: no
length or offset is taken from the file. It is written last, after everything else has reached the disk.
"""

import fcntl
import hashlib
import json
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from libs.runtime.logs import get_logger

MAGIC: Final = b"HRPACKED"
VERSION: Final = 1
FIXED: Final = struct.Struct("<8sIIQ32s")  # magic, version, bytes of the header, of the file, SHA-256 of the rest
ALIGNMENT_BYTES: Final = 4096
LOCK_POLL_S: Final = 0.05
SUFFIX: Final = ".packed"

Bytes = npt.NDArray[np.uint8]
Fill = Callable[[Mapping[str, Bytes]], None]

log = get_logger("packed_file")


@dataclass(frozen=True, slots=True)
class PackedKey:
    """Everything that the bytes depend on."""

    model_digest: str
    dtype: str
    level: str  # of the kernels
    kernels: str  # digest of their sources and compiler

    @property
    def stem(self) -> str:
        """The name without the kernels: files that differ in these alone replace each other."""
        return f"{self.model_digest}-{self.dtype}-{self.level}"

    @property
    def file_name(self) -> str:
        return f"{self.stem}-{self.kernels}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each part lies, and the header that says so."""

    header: bytes
    spans: Mapping[str, tuple[int, int]]  # offset and bytes
    file_bytes: int

    @classmethod
    def of(cls, key: PackedKey, sizes: Mapping[str, int]) -> "Layout":
        """The layout of a file with parts of these sizes, in this order."""
        relative, end = dict[str, tuple[int, int]](), 0
        for name, size_bytes in sizes.items():
            relative[name] = (end, size_bytes)
            end = _aligned(end + size_bytes)
        table = json.dumps({"key": asdict(key), "parts": relative}, separators=(",", ":")).encode()
        header_bytes = _aligned(FIXED.size + len(table))
        digest = hashlib.sha256(table).digest()
        fixed = FIXED.pack(MAGIC, VERSION, header_bytes, header_bytes + end, digest)
        spans = {name: (header_bytes + offset, size_bytes) for name, (offset, size_bytes) in relative.items()}
        return cls((fixed + table).ljust(header_bytes, b"\0"), spans, header_bytes + end)

    def parts(self, memory: mmap.mmap) -> dict[str, Bytes]:
        return {name: np.frombuffer(memory, np.uint8, size, offset) for name, (offset, size) in self.spans.items()}


def shared_parts(
    directory: Path, key: PackedKey, sizes: Mapping[str, int], fill: Fill, give_up: Callable[[], None]
) -> dict[str, Bytes]:
    """The parts as read-only views of the one file that all processes of this host map; made first if need be.

    Args:
        fill: writes the parts; called when there is no sound file yet, while no other process makes one.
        give_up: called while another process makes the file; raises to stop waiting.

    Raises: OSError when the directory cannot be used, and what `fill` and `give_up` raise.
    """
    layout, path = Layout.of(key, sizes), directory / key.file_name
    if (memory := _map_sound(path, layout)) is None:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory, give_up):
            if _map_sound(path, layout) is None:
                _write(path, layout, fill)
                _remove_others(directory, key)
        memory = _map_sound(path, layout)
    if memory is None:
        raise OSError(f"{path} was damaged as it was written")
    return layout.parts(memory)


def private_parts(key: PackedKey, sizes: Mapping[str, int], fill: Fill) -> dict[str, Bytes]:
    """The same parts in memory of this process alone."""
    layout = Layout.of(key, sizes)
    memory = mmap.mmap(-1, layout.file_bytes)
    _ask_for_huge_pages(memory)
    parts = layout.parts(memory)
    fill(parts)
    return parts


def _map_sound(path: Path, layout: Layout) -> mmap.mmap | None:
    """The file's mapping, or None when it is missing or not, to the byte, the file that it should be."""
    try:
        with path.open("rb") as file:
            header = file.read(len(layout.header))
            if os.fstat(file.fileno()).st_size == layout.file_bytes and header == layout.header:
                memory = mmap.mmap(file.fileno(), layout.file_bytes, access=mmap.ACCESS_READ)
                _ask_for_huge_pages(memory)
                memory.madvise(mmap.MADV_WILLNEED)
                return memory
    except FileNotFoundError:
        return None
    log.warning("packed_file_unsound", path=str(path))
    return None


def _ask_for_huge_pages(memory: mmap.mmap) -> None:
    """Before the first touch: a step with one token is bound by reading weights, a third slower from small pages."""
    with suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)


def _write(path: Path, layout: Layout, fill: Fill) -> None:
    started_s = time.monotonic()
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, layout.file_bytes)  # a full disk is an error here, not a SIGBUS later
            memory = mmap.mmap(file.fileno(), layout.file_bytes)
            _ask_for_huge_pages(memory)
            fill(layout.parts(memory))
            memory.flush()
            os.fsync(file.fileno())
            file.write(layout.header)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    finally:
        scratch.unlink(missing_ok=True)
    log.info(
        "packed_file_written", path=str(path), mib=layout.file_bytes >> 20, s=round(time.monotonic() - started_s, 2)
    )


@contextmanager
def _locked(directory: Path, give_up: Callable[[], None]) -> Iterator[None]:
    """Alone in this directory among all who ask; the lock goes away with its holder, however that ends."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        while not _try_lock(descriptor):
            give_up()
            time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_others(directory: Path, key: PackedKey) -> None:
    """Drop what other kernels packed, and what a killed process left; who has a file mapped keeps it."""
    for pattern in (f"{key.stem}-*{SUFFIX}", f".{key.stem}-*"):
        for path in directory.glob(pattern):
            if path.name != key.file_name:
                path.unlink(missing_ok=True)


def _aligned(count_bytes: int) -> int:
    return -(-count_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def address(part: npt.NDArray[Any]) -> int:
    """Where an array's first byte lies; the array must outlive whoever is told."""
    return int(part.__array_interface__["data"][0])
