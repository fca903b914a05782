"""Packs a model's tensors for the torch kernels.

Axes: V vocabulary, K inputs, N outputs, D head dim.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from kernels.linear import LinearWeight, pack_linear
from libs.engine.checkpoint import Checkpoint
from libs.engine.model_config import ModelConfig
from libs.engine.tensors import EMBEDDING, FINAL_NORM, HEAD, LayerTensors, Product, Progress, layer_tensors, open_model


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer layer, packed. qkv and gate_up are joined along N: one product serves them."""

    attention_norm_K: torch.Tensor
    qkv: LinearWeight
    qk_norms_D: tuple[torch.Tensor, torch.Tensor] | None
    o: LinearWeight
    ffn_norm_K: torch.Tensor
    gate_up: LinearWeight
    down: LinearWeight


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """A whole model, packed. With tied embeddings the head shares the table's memory."""

    embedding_VK: torch.Tensor
    layers: tuple[LayerWeights, ...]
    final_norm_K: torch.Tensor
    head: LinearWeight


def load_weights(
    model_path: Path, config: ModelConfig, dtype: torch.dtype, progress: Progress | None = None
) -> ModelWeights:
    """Read, check, round and pack a model.

    Args:
        model_path: directory with safetensors, or a .gguf file.
        dtype: torch.float32 or torch.bfloat16, the rounding class.
        progress: called with (layers done, layers in all) after each layer.

    Raises: ConfigError that names missing, unexpected, misshapen and mistyped tensors, at most ten.
    """
    checkpoint = open_model(model_path, config)
    table = pack_linear(_tensor(checkpoint, EMBEDDING)[: config.vocab_size], dtype)
    layers = []
    for index in range(config.layers):
        layers.append(_load_layer(checkpoint, layer_tensors(config, index), dtype))
        if progress is not None:
            progress(index + 1, config.layers)
    return ModelWeights(
        embedding_VK=table.parts_SNE[0],
        layers=tuple(layers),
        final_norm_K=_vector(checkpoint, FINAL_NORM, dtype),
        head=table if config.tied_embeddings else pack_linear(_tensor(checkpoint, HEAD)[: config.vocab_size], dtype),
    )


def _load_layer(checkpoint: Checkpoint, names: LayerTensors, dtype: torch.dtype) -> LayerWeights:
    def packed(product: Product) -> LinearWeight:
        weights = [_tensor(checkpoint, name) for name in product.weights]
        biases = [_tensor(checkpoint, name) for name in product.biases]
        return pack_linear(torch.cat(weights), dtype, product.cuts, torch.cat(biases) if biases else None)

    def vector(name: str) -> torch.Tensor:
        return _vector(checkpoint, name, dtype)

    return LayerWeights(
        attention_norm_K=vector(names.attention_norm),
        qkv=packed(names.qkv),
        qk_norms_D=names.qk_norms and (vector(names.qk_norms[0]), vector(names.qk_norms[1])),
        o=packed(names.o),
        ffn_norm_K=vector(names.ffn_norm),
        gate_up=packed(names.gate_up),
        down=packed(names.down),
    )


def _vector(checkpoint: Checkpoint, name: str, dtype: torch.dtype) -> torch.Tensor:
    return _tensor(checkpoint, name).to(dtype).float()


def _tensor(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    """The tensor of a name; torch takes bfloat16 as signed bits, and only memory that may be written."""
    array = np.require(checkpoint.read(name), requirements="W")
    if checkpoint.dtypes[name] == "BF16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
