"""Opens a model's tensors under their Hugging Face names, whatever files hold them, and fingerprints those files.

Knows nothing of torch: tensors are arrays, bfloat16 ones the uint16 that their bits are.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.contracts.errors import ConfigError
from libs.engine.safetensors_file import NUMPY_DTYPES, Array, SafetensorsError, SafetensorsFile, open_safetensors

SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
DTYPES: Final = tuple(NUMPY_DTYPES)
MAX_INDEX_BYTES: Final = 64 << 20
SAMPLE_BYTES: Final = 4096
SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Named tensors. `read` may be called once a name; the array may be a view of a mapping, read-only for GGUF."""

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    read: Callable[[str], Array]


def open_checkpoint(model_path: Path) -> Checkpoint:
    """Open a directory (one safetensors file, or shards with an index) or a .gguf file.

    Raises: ConfigError when files are missing or damaged.
    """
    try:
        return _open_gguf(model_path) if model_path.suffix == ".gguf" else _open_safetensors(model_path)
    except (OSError, SafetensorsError) as error:
        raise ConfigError(f"model {model_path}: {error}") from error


def model_digest(model_path: Path, variant: str = "") -> str:
    """32 hex digits that tell models apart without reading all of their weights.

    Covers config.json and of each weight file its name, size, and evenly spaced samples: the header lies in the first,
    and fine-tuned twins with equal headers differ in the others. `variant` names what else its numbers depend on.
    """
    digest = hashlib.sha256(variant.encode())
    try:
        if model_path.suffix == ".gguf":
            files = [model_path]
        else:
            digest.update((model_path / "config.json").read_bytes())
            files = _weight_files(model_path)
        for file in files:
            digest.update(_file_sample(file))
    except OSError as error:
        raise ConfigError(f"model {model_path}: {error}") from error
    return digest.hexdigest()[:32]


def _file_sample(path: Path) -> bytes:
    """Digest of a file's name, size and SAMPLES stretches of it, the first and the last bytes included."""
    size_bytes = path.stat().st_size
    digest = hashlib.sha256(f"{path.name}:{size_bytes}:".encode())
    with path.open("rb") as file:
        for j in range(SAMPLES):
            file.seek(max(0, size_bytes - SAMPLE_BYTES) * j // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.digest()


def _open_gguf(path: Path) -> Checkpoint:
    from libs.engine.gguf_file import GgufError, read_gguf  # few need it, and it takes a tenth of a second
    from libs.engine.gguf_tensors import llama_shape, llama_tensors

    try:
        file = read_gguf(path)
        arrays: dict[str, Array] = dict(llama_tensors(file, llama_shape(file)))
    except GgufError as error:
        raise ConfigError(f"model {path}: {error}") from error
    return Checkpoint(
        shapes={name: array.shape for name, array in arrays.items()},
        dtypes=dict.fromkeys(arrays, "F32"),
        read=arrays.pop,
    )


def _open_safetensors(model_dir: Path) -> Checkpoint:
    owners: dict[str, SafetensorsFile] = {}
    for path in _weight_files(model_dir):
        file = open_safetensors(path)
        for name in file.entries:
            if name in owners:
                raise ConfigError(f"model {model_dir}: tensor {name} is in two files")
            owners[name] = file
    return Checkpoint(
        shapes={name: file.entries[name].shape for name, file in owners.items()},
        dtypes={name: file.entries[name].dtype for name, file in owners.items()},
        read=lambda name: owners[name].array(name),
    )


def _weight_files(model_dir: Path) -> list[Path]:
    """The files that hold the weights, in order of their names."""
    index = model_dir / INDEX_FILE
    if not index.exists():
        if not (model_dir / SINGLE_FILE).exists():
            raise ConfigError(f"model {model_dir}: neither {SINGLE_FILE} nor {INDEX_FILE} is there")
        return [model_dir / SINGLE_FILE]
    names = _shard_names(index)
    if absent := [name for name in names if not (model_dir / name).is_file()]:
        raise ConfigError(f"model {model_dir}: {INDEX_FILE} names files that are missing: {', '.join(absent[:10])}")
    return [model_dir / name for name in names]


def _shard_names(index: Path) -> list[str]:
    if index.stat().st_size > MAX_INDEX_BYTES:
        raise ConfigError(f"{index} is larger than {MAX_INDEX_BYTES} bytes")
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{index} is not a safetensors index: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ConfigError(f"{index} names {name!r}, which is no safetensors file of this directory")
    if not names:
        raise ConfigError(f"{index} names no file")
    return names
