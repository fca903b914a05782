"""Opens a model's tensors under their Hugging Face names, whatever files hold them, and fingerprints those files."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from libs.contracts.errors import ConfigError
from libs.engine.gguf_file import GgufError, read_gguf
from libs.engine.gguf_tensors import llama_shape, llama_tensors

SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
DTYPES: Final = ("F32", "F16", "BF16")
MAX_INDEX_BYTES: Final = 64 << 20
SAMPLE_BYTES: Final = 4096
SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Named tensors. `read` may be called once a name; the tensor may be a view of a read-only mapping."""

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    read: Callable[[str], torch.Tensor]


def open_checkpoint(model_path: Path) -> Checkpoint:
    """Open a directory (one safetensors file, or shards with an index) or a .gguf file.

    Raises: ConfigError when files are missing or damaged.
    """
    try:
        return _open_gguf(model_path) if model_path.suffix == ".gguf" else _open_safetensors(model_path)
    except (OSError, SafetensorError, GgufError) as error:
        raise ConfigError(f"model {model_path}: {error}") from error


def model_digest(model_path: Path) -> str:
    """32 hex digits that tell models apart without reading all of their weights.

    Covers config.json and of each weight file its name, size, and evenly spaced samples: the header lies in the first,
    and fine-tuned twins with equal headers differ in the others.
    """
    digest = hashlib.sha256()
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
    file = read_gguf(path)
    arrays = llama_tensors(file, llama_shape(file))  # unquantised ones are views of the read-only mapping
    tensors = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in arrays}
    return Checkpoint(
        shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        dtypes=dict.fromkeys(tensors, "F32"),
        read=tensors.pop,
    )


def _open_safetensors(model_dir: Path) -> Checkpoint:
    owners: dict[str, Any] = {}
    for path in _weight_files(model_dir):
        file: Any = safe_open(path, framework="pt")
        for name in list(file.keys()):
            if name in owners:
                raise ConfigError(f"model {model_dir}: tensor {name} is in two files")
            owners[name] = file
    slices = {name: file.get_slice(name) for name, file in owners.items()}
    return Checkpoint(
        shapes={name: tuple(part.get_shape()) for name, part in slices.items()},
        dtypes={name: str(part.get_dtype()) for name, part in slices.items()},
        read=lambda name: cast(torch.Tensor, owners[name].get_tensor(name)),
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
