"""Creates the shared memory of a KV pool: a file with its header written, anonymous and sealed or of a name."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import FIXED_HEADER, KvLayout


def create_pool(layout: KvLayout, blocks: int) -> int:
    """A new pool of `blocks` blocks, all fill counts 0. Returns its file descriptor, to be passed to children.

    The memory is allocated now: a write into a page that does not exist would later kill a worker with SIGBUS, and the
    seals keep any holder from shrinking the file under the others. It has no name in any file system and goes away with
    its last descriptor. Raises ConfigError when the host does not have the memory.
    """
    size_bytes = layout.pool_bytes(blocks)
    header = layout.pack_header(blocks)
    if size_bytes > (left_bytes := available_bytes()):
        raise ConfigError(f"a KV pool of {_mib(size_bytes)} does not fit: this host has {_mib(left_bytes)} left")
    fd = os.memfd_create("kv-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size_bytes)
        os.pwrite(fd, header, 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError as error:
        os.close(fd)
        raise ConfigError(f"cannot allocate a KV pool of {_mib(size_bytes)}: {error.strerror}") from error
    return fd


def create_pool_at(path: Path, layout: KvLayout, blocks: int) -> int:
    """A new pool in a file of this name, which nobody finds there: it goes away with its last descriptor.

    Its space is taken now, as with memory. Raises ConfigError when there is such a file already, or no space.
    """
    header = layout.pack_header(blocks)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot make {path}: {error.strerror}") from error
    try:
        os.unlink(path)
        os.posix_fallocate(fd, 0, layout.pool_bytes(blocks))
        os.pwrite(fd, header, 0)
    except OSError as error:
        os.close(fd)
        raise ConfigError(f"{path} has no room for {_mib(layout.pool_bytes(blocks))}: {error.strerror}") from error
    return fd


def hold_pool_at(path: Path, layout: KvLayout, blocks: int) -> int:
    """See to it that a pool of this layout lies in a file of this name, for workers that attach by the name.

    One that lies there stays as it is, however many blocks it has: workers may be using it. Otherwise a new one takes
    the name, whole. Returns its blocks. Raises ConfigError when there is no room for it.
    """
    with suppress(OSError, ValueError), path.open("rb") as file:
        return layout.check_header(file.read(FIXED_HEADER.size), os.fstat(file.fileno()).st_size)
    scratch = path.with_name(f".{path.name}")
    scratch.unlink(missing_ok=True)
    try:
        fd = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, layout.pool_bytes(blocks))
            os.pwrite(fd, layout.pack_header(blocks), 0)
        finally:
            os.close(fd)
        scratch.rename(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise ConfigError(f"{path} has no room for {_mib(layout.pool_bytes(blocks))}: {error.strerror}") from error
    return blocks


def mark_use(fd: int, incarnation: str) -> None:
    """From now on this process may write to the pool, on a scheduler's order: the kernel forgets that only at its end.

    The mark is a record lock of this process at a place that its incarnation names. Nobody may close another descriptor
    of the pool afterwards: that would drop the mark.
    """
    fcntl.lockf(fd, fcntl.LOCK_EX, 1, _place(incarnation))


def is_used(fd: int, incarnation: str) -> bool:
    """Whether another process has marked its use of the pool under this incarnation, and lives."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(incarnation))
    except OSError:
        return True
    fcntl.lockf(fd, fcntl.LOCK_UN, 1, _place(incarnation))
    return False


def _place(incarnation: str) -> int:
    return int(incarnation[:15], 16)  # 60 bits: an offset has 63


def available_bytes() -> int:
    """Memory that this host, or the control group that holds us, can still give without swapping.

    Allocating more would not fail: the kernel would kill processes to find it.
    """
    meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    left_bytes = int(meminfo["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (group / "memory.max").read_text(), (group / "memory.current").read_text()
    except OSError:  # no control group of version 2, or the root one
        return left_bytes
    return left_bytes if limit.strip() == "max" else min(left_bytes, max(0, int(limit) - int(used)))


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
