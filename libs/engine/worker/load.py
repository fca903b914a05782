"""Loads everything that a worker serves with: model, pool and engine, as its settings say."""

import os
from collections.abc import Callable
from pathlib import Path

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import kv_dtype_of
from libs.engine.checkpoint import model_digest
from libs.engine.engine_spec import EngineSpec, Shared
from libs.engine.host_tier import MappedTier
from libs.engine.kernel_choice import settle_kernels
from libs.engine.model_config import load_model_config
from libs.engine.opening import open_engine
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.pool_source import pool_name, pool_source
from libs.engine.worker.serve import Loaded


def load(config: WorkerConfig, progress: Callable[[int, int], None]) -> Loaded:
    """Takes a second or seconds; meant for a thread. `progress(done, total)` counts layers, and may raise to give up.

    Raises ConfigError when model, pool and settings do not fit together.
    """
    model = load_model_config(config.model_dir, config.max_model_len)
    max_model_len = config.max_model_len or model.max_position_tokens
    if max_model_len > model.max_position_tokens:
        raise ConfigError(f"max_model_len {max_model_len} is beyond the model's {model.max_position_tokens}")
    if config.kv_dtype and config.kv_dtype != kv_dtype_of(config.dtype):
        raise ConfigError(f"with dtype {config.dtype} kv_dtype is {kv_dtype_of(config.dtype)}, not {config.kv_dtype}")
    source = pool_source(config.pool)
    spec = EngineSpec(
        kernels=settle_kernels(config.kernels, (model.head_dim,)),
        model_path=config.model_dir,
        dtype=config.dtype,
        threads=config.threads or len(os.sched_getaffinity(0)),
        block_tokens=config.block_tokens,
        packed_dir=Path(config.packed_dir) if config.packed_dir else None,
    )
    opened = open_engine(spec, model, Shared(source), progress)
    tier_source = pool_source(config.host_pool) if config.host_pool else None
    return Loaded(
        engine=opened.engine,
        pool=opened.pool,
        pool_name=pool_name(config.host, source),
        pool_blocks=opened.pool.blocks,
        layout=opened.pool.layout,
        eos_ids=model.eos_ids,
        vocab_size=model.vocab_size,
        max_model_len=max_model_len,
        model_digest=model_digest(config.model_dir, model.variant),
        numerics_class=opened.numerics_class,
        op_times=opened.op_times,
        tier=None
        if tier_source is None
        else MappedTier.attach(tier_source, opened.pool, bytes_per_s=config.host_bytes_per_s),
        tier_name="" if tier_source is None else pool_name(config.host, tier_source),
    )
