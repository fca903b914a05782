"""Checks a model's tensors against its config and packs them for the kernels.

Axes: V vocabulary, K inputs, N outputs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from kernels.linear import LinearWeight, even_cuts, pack_linear
from libs.contracts.errors import ConfigError
from libs.engine.checkpoint import DTYPES, Checkpoint, open_checkpoint
from libs.engine.model_config import ModelConfig

MAX_PROBLEMS: Final = 10
IGNORED_SUFFIX: Final = "rotary_emb.inv_freq"  # old checkpoints carry the table that rope_theta gives

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer layer, packed. qkv and gate_up are joined along N: one product serves them."""

    attention_norm_K: torch.Tensor
    qkv: LinearWeight
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
    checkpoint = open_checkpoint(model_path)
    if problems := _problems(checkpoint, config):
        shown = "; ".join(problems[:MAX_PROBLEMS])
        more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        raise ConfigError(f"model {model_path}: {shown}{more}")
    table = pack_linear(checkpoint.read("model.embed_tokens.weight"), dtype)
    layers = []
    for index in range(config.layers):
        layers.append(_load_layer(checkpoint, config, index, dtype))
        if progress is not None:
            progress(index + 1, config.layers)
    return ModelWeights(
        embedding_VK=table.parts_SNE[0],
        layers=tuple(layers),
        final_norm_K=_vector(checkpoint, "model.norm.weight", dtype),
        head=table if config.tied_embeddings else pack_linear(checkpoint.read("lm_head.weight"), dtype),
    )


def _load_layer(checkpoint: Checkpoint, config: ModelConfig, index: int, dtype: torch.dtype) -> LayerWeights:
    prefix = f"model.layers.{index}."

    def packed(names: tuple[str, ...], cuts: tuple[int, ...], biased: bool) -> LinearWeight:
        weights = [checkpoint.read(f"{prefix}{name}.weight") for name in names]
        biases = [checkpoint.read(f"{prefix}{name}.bias") for name in names] if biased else []
        return pack_linear(torch.cat(weights), dtype, cuts, torch.cat(biases) if biases else None)

    q_inputs = config.heads * config.head_dim
    head_cuts = tuple(range(0, q_inputs + 1, q_inputs // config.kv_heads))
    attention, mlp = config.attention_bias, config.mlp_bias
    return LayerWeights(
        attention_norm_K=_vector(checkpoint, f"{prefix}input_layernorm.weight", dtype),
        qkv=packed(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), (), attention),
        o=packed(("self_attn.o_proj",), head_cuts, attention),
        ffn_norm_K=_vector(checkpoint, f"{prefix}post_attention_layernorm.weight", dtype),
        gate_up=packed(("mlp.gate_proj", "mlp.up_proj"), (), mlp),
        down=packed(("mlp.down_proj",), even_cuts(config.ffn_size), mlp),
    )


def _vector(checkpoint: Checkpoint, name: str, dtype: torch.dtype) -> torch.Tensor:
    return checkpoint.read(name).to(dtype).float()


def _problems(checkpoint: Checkpoint, config: ModelConfig) -> list[str]:
    expected = dict(_expected_shapes(config))
    optional = {"lm_head.weight"} if config.tied_embeddings else set()
    problems = [f"{name} is missing" for name in expected if name not in checkpoint.shapes]
    for name, shape in checkpoint.shapes.items():
        if name not in expected:
            if name not in optional and not name.endswith(IGNORED_SUFFIX):
                problems.append(f"{name} is not part of the model")
        elif shape != expected[name]:
            problems.append(f"{name} has shape {list(shape)}, the config needs {list(expected[name])}")
        elif checkpoint.dtypes[name] not in DTYPES:
            problems.append(f"{name} has dtype {checkpoint.dtypes[name]}, supported are {', '.join(DTYPES)}")
    return problems


def _expected_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, ffn = config.hidden_size, config.ffn_size
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    linears = (
        ("self_attn.q_proj", q, hidden, config.attention_bias),
        ("self_attn.k_proj", kv, hidden, config.attention_bias),
        ("self_attn.v_proj", kv, hidden, config.attention_bias),
        ("self_attn.o_proj", hidden, q, config.attention_bias),
        ("mlp.gate_proj", ffn, hidden, config.mlp_bias),
        ("mlp.up_proj", ffn, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, ffn, config.mlp_bias),
    )
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    for index in range(config.layers):
        prefix = f"model.layers.{index}."
        yield f"{prefix}input_layernorm.weight", (hidden,)
        yield f"{prefix}post_attention_layernorm.weight", (hidden,)
        for name, outputs, inputs, biased in linears:
            yield f"{prefix}{name}.weight", (outputs, inputs)
            if biased:
                yield f"{prefix}{name}.bias", (outputs,)
    yield "model.norm.weight", (hidden,)
    if not config.tied_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)
