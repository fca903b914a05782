"""Opens the engine of the native kernels over a pool: library, packed weights, a warm team, the name of its class."""

from libs.contracts.kv_layout import KvLayout
from libs.engine.checkpoint import model_digest
from libs.engine.engine_spec import EngineSpec, OpenEngine, Private, Shared
from libs.engine.kernel_choice import level_of
from libs.engine.model_config import ModelConfig
from libs.engine.native.engine import NativeEngine
from libs.engine.native.kernels import Kernels
from libs.engine.native.library import open_level
from libs.engine.native.loading import load_model
from libs.engine.native.packed_file import PackedKey
from libs.engine.native.pool import NativePool
from libs.engine.native.probe import probe_digest
from libs.engine.numerics_class import class_name
from libs.engine.tensors import Progress


def open_native(
    spec: EngineSpec, config: ModelConfig, layout: KvLayout, memory: Shared | Private, progress: Progress
) -> OpenEngine:
    """Raises ConfigError, and what `progress` raises."""
    level = level_of(spec.kernels)
    pool = memory.pool(NativePool, layout)
    library, digest = open_level(level)
    kernels = Kernels(library, spec.threads)
    key = PackedKey(model_digest(spec.model_path, config.variant), spec.dtype, level, digest)
    model = load_model(kernels, spec.model_path, config, key, spec.packed_dir, progress)
    engine = NativeEngine(kernels, model, pool)
    engine.warm_up()
    named = class_name(level, spec.dtype, layout.dtype, digest, probe_digest(kernels, spec.dtype))
    return OpenEngine(engine, pool, named, op_times=kernels)
