"""How long sequences are, and how much memory their KV takes: a share of what is free."""

from pathlib import Path
from typing import Final

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import MAX_BLOCKS, KvLayout

DEFAULT_SHARE: Final = 0.25
DEFAULT_MAX_BYTES: Final = 2 * 1024**3
CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
CGROUP_USED: Final = Path("/sys/fs/cgroup/memory.current")


def context_tokens(limit_tokens: int, wanted: int) -> int:
    """The longest sequence to serve: `wanted`, or the model's own limit when that is 0. Raises ConfigError."""
    if wanted < 0:
        raise ConfigError(f"--max-model-len must be positive, not {wanted}")
    if wanted > limit_tokens:
        raise ConfigError(f"--max-model-len {wanted} is beyond the model's own limit of {limit_tokens}")
    return wanted or limit_tokens


def pool_blocks(layout: KvLayout, wanted: int, available_bytes: int) -> int:
    """Blocks of the pool: `wanted`, or a share of the free memory when that is 0. Raises ConfigError."""
    if wanted < 0 or wanted > MAX_BLOCKS:
        raise ConfigError(f"--kv-blocks must be between 1 and {MAX_BLOCKS}")
    if not wanted:
        budget_bytes = min(int(available_bytes * DEFAULT_SHARE), DEFAULT_MAX_BYTES)
        return max(1, min(budget_bytes // layout.block_bytes, MAX_BLOCKS))
    if layout.pool_bytes(wanted) > available_bytes:
        raise ConfigError(
            f"--kv-blocks {wanted} needs {layout.pool_bytes(wanted) / 1024**3:.1f} GiB; "
            f"{available_bytes / 1024**3:.1f} GiB are free"
        )
    return wanted


def available_memory_bytes() -> int:
    """Memory that new processes may take: what the kernel thinks available, or less where a cgroup limits us."""
    meminfo = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in meminfo if line.startswith("MemAvailable:"))
    try:
        return min(available, max(0, int(CGROUP_LIMIT.read_text()) - int(CGROUP_USED.read_text())))
    except (OSError, ValueError):  # no such cgroup, or its limit is "max"
        return available
