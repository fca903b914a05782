"""How much KV memory a stack takes: the layout from the model's config.json, and a share of the free memory."""

import json
from pathlib import Path
from typing import Any, Final

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import MAX_BLOCKS, TILE_TAG_PLAIN, KvLayout

DEFAULT_SHARE: Final = 0.25
DEFAULT_MAX_BYTES: Final = 2 * 1024**3
CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
CGROUP_USED: Final = Path("/sys/fs/cgroup/memory.current")


def read_model_config(model_dir: Path) -> dict[str, Any]:
    """The content of the model's config.json. Raises ConfigError when there is none to read."""
    path = model_dir / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{model_dir} is no model directory: cannot read config.json") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return config


def kv_layout(config: dict[str, Any], *, block_tokens: int, dtype: str, tag: str = TILE_TAG_PLAIN) -> KvLayout:
    """The layout of this model's KV blocks. Raises ConfigError for a model or a size that has none."""
    try:
        heads = int(config["num_attention_heads"])
        return KvLayout(
            layers=int(config["num_hidden_layers"]),
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            block_tokens=block_tokens,
            dtype=dtype,
            tile_tag=tag,
        )
    except KeyError as error:
        raise ConfigError(f"the model's config.json lacks {error}") from error
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise ConfigError(f"the model has no KV layout: {error}") from error


def context_tokens(config: dict[str, Any], wanted: int) -> int:
    """The longest sequence to serve: `wanted`, or what the model allows when that is 0. Raises ConfigError."""
    limit = int(config.get("max_position_embeddings") or 0)
    if wanted < 0 or not (wanted or limit):
        raise ConfigError("--max-model-len must be given and positive: the model names no limit of its own")
    if limit and wanted > limit:
        raise ConfigError(f"--max-model-len {wanted} is beyond the model's own limit of {limit}")
    return wanted or limit


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
