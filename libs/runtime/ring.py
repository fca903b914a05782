"""The local trace ring: records go into a list, a thread writes them to files of bounded size, the oldest are dropped.

Whoever puts a record pays for an append. A disk that is slow, full or gone costs records, never a request.
"""

import asyncio
import os
import struct
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from libs.contracts import trace_records
from libs.contracts.trace_records import Head, Record
from libs.runtime.logs import get_logger

RING_BYTES: Final = 16 << 20  # of one process's place
SEGMENTS: Final = 8
COMPANY_S: Final = 0.25  # how long a record waits for others
MOST_PENDING: Final = 1 << 16
CLOSE_S: Final = 1.0
SUFFIX: Final = ".trace"
FRAME = struct.Struct("<I")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

log = get_logger("trace")


class Ring:
    """One owner thread puts; another writes. Made by `open_ring`, or OFF."""

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        """Without `wake` it is off: records are forgotten."""
        self._wake = wake
        self._pending: deque[Record] = deque()
        self.dropped = 0

    @property
    def is_on(self) -> bool:
        return self._wake is not None

    def put(self, record: Record) -> None:
        """Have it written soon. Never blocks, never fails."""
        if self._wake is None:
            return
        pending = self._pending
        if len(pending) >= MOST_PENDING:
            self.dropped += 1
            return
        pending.append(record)
        if len(pending) == 1:
            self._wake()

    def take(self) -> list[Record]:
        """What waits; it no longer does. Called by the writing thread."""
        taken = [self._pending.popleft() for _ in range(len(self._pending))]
        if self._pending and self._wake is not None:
            self._wake()  # came meanwhile, and was not the first
        return taken


OFF: Final = Ring()


@asynccontextmanager
async def open_ring(
    directory: str, service: str, instance: str, *, limit_bytes: int = RING_BYTES
) -> AsyncIterator[Ring]:
    """A ring in `directory` until the block ends; "" is off. One process at a time may have a directory."""
    if not directory:
        yield OFF
        return
    wake = threading.Event()
    ring = Ring(wake.set)
    writer = _Writer(ring, Path(directory), Head(service, instance, os.getpid(), _boot(), unix_offset_ns(), 0))
    thread = threading.Thread(target=writer.run, args=(wake, limit_bytes), name="trace-ring", daemon=True)
    thread.start()
    try:
        yield ring
    finally:
        writer.is_closing = True
        wake.set()
        await asyncio.to_thread(thread.join, CLOSE_S)  # one that hangs on its disk dies with the process


def unix_offset_ns() -> int:
    """What makes a monotonic time one since 1970."""
    return time.time_ns() - time.monotonic_ns()


class _Writer:
    """Owns the files. Segments are numbered on from those of earlier lives, and are never opened again."""

    def __init__(self, ring: Ring, directory: Path, head: Head) -> None:
        self._ring, self._directory, self._head = ring, directory, head
        self._file = -1
        self._size_bytes = 0
        self._has_failed = False
        self.is_closing = False

    def run(self, wake: threading.Event, limit_bytes: int) -> None:
        closing = threading.Event()  # nobody sets it: a sleep
        while not self.is_closing:
            wake.wait()
            if not self.is_closing:
                closing.wait(COMPANY_S)
            wake.clear()
            self._flush(limit_bytes // SEGMENTS)
        self._flush(limit_bytes // SEGMENTS)
        if self._file >= 0:
            os.close(self._file)

    def _flush(self, segment_bytes: int) -> None:
        records = self._ring.take()
        if not records:
            return
        try:
            if self._file < 0 or self._size_bytes >= segment_bytes:
                self._next_segment()
            self._append(records)
        except (OSError, msgspec.MsgspecError) as error:
            self._ring.dropped += len(records)
            if not self._has_failed:
                self._has_failed = True
                log.warning("trace_not_written", reason=str(error))

    def _append(self, records: list[Record]) -> None:
        payload = trace_records.encode(records)
        frame = FRAME.pack(len(payload)) + payload
        written = os.write(self._file, frame)
        self._size_bytes += written
        if written < len(frame):
            self._size_bytes = RING_BYTES  # a torn frame ends its file
            raise OSError("the disk is full")

    def _next_segment(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        numbers = sorted(number_of(path) for path in self._directory.glob(f"*{SUFFIX}"))
        for number in numbers[: max(0, len(numbers) - SEGMENTS + 1)]:
            (self._directory / f"{number:08d}{SUFFIX}").unlink(missing_ok=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        path = self._directory / f"{(numbers[-1] if numbers else 0) + 1:08d}{SUFFIX}"
        self._file, self._size_bytes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 0
        self._append([msgspec.structs.replace(self._head, dropped=self._ring.dropped)])


def number_of(path: Path) -> int:
    """The number of a segment; 0 for a file that is none."""
    return int(path.stem) if path.stem.isdigit() else 0


def read_ring(directory: Path) -> Iterator[tuple[Head, list[Record]]]:
    """(head, records) of each segment, oldest first. What is torn or no record ends its segment, in silence."""
    for path in sorted(directory.glob(f"*{SUFFIX}"), key=number_of):
        records = list(_records(path))
        if records and isinstance(records[0], Head):
            yield records[0], records[1:]


def _records(path: Path) -> Iterator[Record]:
    try:
        content = path.read_bytes()
    except OSError:
        return  # dropped while we looked
    at = 0
    while at + FRAME.size <= len(content):
        (size,) = FRAME.unpack_from(content, at)
        at += FRAME.size
        if at + size > len(content):
            return
        try:
            yield from trace_records.decode(content[at : at + size])
        except msgspec.MsgspecError:
            return
        at += size


def _boot() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
