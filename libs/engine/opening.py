"""Opens an engine over a pool: native kernels or the torch references, whichever was settled.

A family's code is imported only when it serves: torch takes seconds, and hundreds of megabytes.
"""

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import kv_dtype_of
from libs.engine.engine_spec import EngineSpec, OpenEngine, Private, Shared
from libs.engine.kernel_choice import check_dtype, check_head_dim, level_of, tile_tag
from libs.engine.model_config import ModelConfig
from libs.engine.tensors import Progress


def open_engine(spec: EngineSpec, config: ModelConfig, memory: Shared | Private, progress: Progress) -> OpenEngine:
    """Takes a second (torch: several). Raises ConfigError when model, pool and machine do not fit together, and what
    `progress` raises.
    """
    check_dtype(spec.kernels, spec.dtype)
    check_head_dim(spec.kernels, config.head_dim)
    try:
        kv_dtype = kv_dtype_of(spec.dtype)
        layout = config.kv_layout(spec.block_tokens, kv_dtype, tile_tag(spec.kernels, kv_dtype))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if level_of(spec.kernels):
        from libs.engine.native.opening import open_native

        return open_native(spec, config, layout, memory, progress)
    from libs.engine.torch_opening import open_torch

    return open_torch(spec, config, layout, memory, progress)
