"""Which shared memory a setting means, and what to call it."""

import os
from pathlib import Path

from libs.contracts.errors import ConfigError
from libs.runtime.kill_switch import arm
from libs.runtime.pool_file import mark_use

FD_PREFIX = "fd:"


def pool_source(pool: str) -> int | Path:
    """ "fd:N" as the descriptor N, anything else as a path. Raises ConfigError for "fd:" without a number."""
    if not pool.startswith(FD_PREFIX):
        return Path(pool)
    number = pool.removeprefix(FD_PREFIX)
    if not number.isdecimal():
        raise ConfigError(f"pool {pool!r} names no descriptor")
    return int(number)


def mark_pool_use(source: int | Path, incarnation: str) -> None:
    """Tell whoever made the pool that this life of a worker may write to it from now on.

    One found by a descriptor is our parent's, which knows our process; one found by a path gets a kill switch beside
    it. Raises ConfigError.
    """
    if not isinstance(source, Path):
        mark_use(source, incarnation)
        return
    try:
        arm(source.parent, incarnation)
    except OSError as error:
        raise ConfigError(f"cannot make a kill switch beside {source}: {error.strerror}") from error


def pool_name(host: str, source: int | Path) -> str:
    """Names the memory itself: descriptors and paths of one pool differ from process to process, its inode does not."""
    try:
        stat = os.stat(source)
    except OSError as error:
        raise ConfigError(f"KV pool {source}: {error.strerror}") from error
    return f"{host}/{stat.st_dev:x}-{stat.st_ino:x}"
