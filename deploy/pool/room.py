"""How many blocks a pool holder makes: of its model's layout, in the memory and in the folder that there are."""

import shutil

from deploy.local import capacity
from deploy.pool.config import Config
from libs.contracts.kv_layout import KvLayout, kv_dtype_of
from libs.engine.kernel_choice import check_dtype, settle_kernels, tile_tag
from libs.engine.model_config import load_model_config


def fitting_blocks(config: Config) -> tuple[KvLayout, int]:
    """The pool's layout and its blocks. Raises ConfigError when the settings do not fit the model or this machine."""
    model = load_model_config(config.model_dir)
    kernels = settle_kernels(config.kernels, (model.head_dim,))
    check_dtype(kernels, config.dtype)
    kv_dtype = kv_dtype_of(config.dtype)
    layout = model.kv_layout(config.block_tokens, kv_dtype, tile_tag(kernels, kv_dtype))
    blocks = capacity.pool_blocks(layout, config.blocks, capacity.available_memory_bytes())
    if config.blocks:
        return layout, blocks
    return layout, max(1, min(blocks, _blocks_within(layout, shutil.disk_usage(config.path.parent).free)))


def _blocks_within(layout: KvLayout, free_bytes: int) -> int:
    blocks = free_bytes // layout.block_bytes
    while blocks > 0 and layout.pool_bytes(blocks) > free_bytes:
        blocks -= 1
    return blocks
