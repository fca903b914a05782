"""Attaches the pool and loads the engine: everything of a worker that needs torch."""

import os
from collections.abc import Callable

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import KvLayout
from libs.engine.checkpoint import model_digest
from libs.engine.engine import Engine
from libs.engine.model_config import load_model_config
from libs.engine.numerics_class import numerics_class
from libs.engine.pool import KvPool
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.pool_source import pool_name, pool_source
from libs.engine.worker.serve import Loaded
from libs.runtime.logs import get_logger

log = get_logger("worker")


def load(config: WorkerConfig, progress: Callable[[int, int], None]) -> Loaded:
    """Takes seconds; meant for a thread. `progress(done, total)` counts layers, and may raise to give up.

    Raises ConfigError when model, pool and settings do not fit together.
    """
    model = load_model_config(config.model_dir)
    max_model_len = config.max_model_len or model.max_position_tokens
    if max_model_len > model.max_position_tokens:
        raise ConfigError(f"max_model_len {max_model_len} is beyond the model's {model.max_position_tokens}")
    source = pool_source(config.pool)
    pool = KvPool.attach(source, _layout(model.kv_layout, config))
    threads = config.threads or len(os.sched_getaffinity(0))
    log.warning("no_batch_promise", reason="torch kernels: what else is in a batch may change the last bits of a token")
    engine = Engine.load(config.model_dir, pool, dtype=config.dtype, threads=threads, progress=progress)
    return Loaded(
        engine=engine,
        pool=pool,
        pool_name=pool_name(config.host, source),
        pool_blocks=pool.blocks,
        layout=pool.layout,
        eos_ids=model.eos_ids,
        vocab_size=model.vocab_size,
        max_model_len=max_model_len,
        model_digest=model_digest(config.model_dir),
        numerics_class=numerics_class(config.dtype, config.kv_dtype or config.dtype),
    )


def _layout(kv_layout: Callable[[int, str], KvLayout], config: WorkerConfig) -> KvLayout:
    try:
        return kv_layout(config.block_tokens, config.kv_dtype or config.dtype)
    except ValueError as error:
        raise ConfigError(str(error)) from error
