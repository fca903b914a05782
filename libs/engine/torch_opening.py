"""Opens the engine of the torch reference kernels over a pool."""

from libs.contracts.kv_layout import KvLayout
from libs.engine.engine import Engine
from libs.engine.engine_spec import EngineSpec, OpenEngine, Private, Shared
from libs.engine.model_config import ModelConfig
from libs.engine.pool import KvPool
from libs.engine.tensors import Progress
from libs.engine.torch_class import torch_class
from libs.runtime.logs import get_logger

log = get_logger("engine")  # "torch" is a logger of the library, with a format of its own


def open_torch(
    spec: EngineSpec, config: ModelConfig, layout: KvLayout, memory: Shared | Private, progress: Progress
) -> OpenEngine:
    """Raises ConfigError, and what `progress` raises."""
    log.warning("no_batch_promise", reason="torch kernels: what else is in a batch may change the last bits of a token")
    pool = memory.pool(KvPool, layout)
    engine = Engine.load(spec.model_path, config, pool, dtype=spec.dtype, threads=spec.threads, progress=progress)
    return OpenEngine(engine, pool, torch_class(spec.dtype, layout.dtype))
