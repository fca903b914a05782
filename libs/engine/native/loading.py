"""From a model on disk to an engine that steps: packed weights, shared where they can be, and a warm team."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kernels.native.structs import DTYPES
from libs.contracts.errors import ConfigError
from libs.engine.checkpoint import Checkpoint
from libs.engine.model_config import ModelConfig
from libs.engine.native.kernels import Kernels
from libs.engine.native.linear_struct import LinearStruct
from libs.engine.native.model import NativeModel
from libs.engine.native.packed_file import Bytes, Fill, PackedKey, private_parts, shared_parts
from libs.engine.native.parts import Linear, fill_parts, part_sizes
from libs.engine.safetensors_file import Array
from libs.engine.tensors import Progress, open_model
from libs.runtime.logs import get_logger

log = get_logger("engine")


def pack_private(kernels: Kernels, config: ModelConfig, checkpoint: Checkpoint, dtype: str) -> NativeModel:
    """A model in memory of this process alone."""
    key = PackedKey("", dtype, "", "")
    fill = _filling(kernels, config, lambda: checkpoint, dtype, lambda done, total: None)
    return NativeModel(config, dtype, private_parts(key, _sizes(kernels, config, dtype), fill))


def load_model(
    kernels: Kernels, model_path: Path, config: ModelConfig, key: PackedKey, packed_dir: Path | None, progress: Progress
) -> NativeModel:
    """The model over the host's packed file, made first if need be; over private memory where there is none to be had.

    Raises: ConfigError for a model whose tensors do not fit; what `progress` raises.
    """
    dtype, sizes = key.dtype, _sizes(kernels, config, key.dtype)
    fill = _filling(kernels, config, lambda: open_model(model_path, config), dtype, progress)
    if packed_dir is not None:
        try:
            give_up = partial(progress, 0, config.layers)
            return NativeModel(config, dtype, shared_parts(packed_dir, key, sizes, fill, give_up))
        except OSError as error:
            log.warning("weights_not_shared", directory=str(packed_dir), reason=str(error))
    return NativeModel(config, dtype, private_parts(key, sizes, fill))


def _sizes(kernels: Kernels, config: ModelConfig, dtype: str) -> dict[str, int]:
    if dtype not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    return part_sizes(config, lambda linear: kernels.packed_bytes(LinearStruct(linear, dtype)))


def _filling(
    kernels: Kernels, config: ModelConfig, checkpoint: Callable[[], Checkpoint], dtype: str, progress: Progress
) -> Fill:
    """Fills parts from the checkpoint, which is opened only then."""

    def pack(linear: Linear, source: Array, is_bfloat16: bool, packed: Bytes) -> None:
        kernels.pack_linear(LinearStruct(linear, dtype), source, is_bfloat16, packed)

    def fill(parts: Mapping[str, Bytes]) -> None:
        for done in fill_parts(parts, config, checkpoint(), dtype, pack):
            progress(done, config.layers)

    return fill
