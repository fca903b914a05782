"""Knows which tensors a model has, checks a checkpoint against it, and says which make one product.

Knows nothing of torch: both engines load through it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernels.segments import even_cuts
from libs.contracts.errors import ConfigError
from libs.engine.checkpoint import DTYPES, Checkpoint, open_checkpoint
from libs.engine.model_config import ModelConfig

EMBEDDING: Final = "model.embed_tokens.weight"
FINAL_NORM: Final = "model.norm.weight"
HEAD: Final = "lm_head.weight"
MAX_PROBLEMS: Final = 10
IGNORED_SUFFIX: Final = "rotary_emb.inv_freq"  # old checkpoints carry the table that the config gives

Progress = Callable[[int, int], None]  # layers done, layers in all; may raise to give up


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of a layer: weights joined along N serve it together. `cuts` is empty for one segment of K."""

    weights: tuple[str, ...]
    biases: tuple[str, ...]
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """The names of one layer's tensors, by what they are for."""

    attention_norm: str
    qkv: Product
    qk_norms: tuple[str, str] | None  # of queries and keys, each [head_dim]
    o: Product
    ffn_norm: str
    gate_up: Product
    down: Product


def open_model(model_path: Path, config: ModelConfig) -> Checkpoint:
    """The checkpoint of a model, all of whose tensors are there, of their shapes, of dtypes that can be read.

    Raises: ConfigError that names missing, unexpected, misshapen and mistyped tensors, at most ten.
    """
    checkpoint = open_checkpoint(model_path)
    if problems := _problems(checkpoint, config):
        shown = "; ".join(problems[:MAX_PROBLEMS])
        more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        raise ConfigError(f"model {model_path}: {shown}{more}")
    return checkpoint


def layer_tensors(config: ModelConfig, index: int) -> LayerTensors:
    """What layer `index` is made of, and where the sums of its products are cut."""
    prefix = f"model.layers.{index}."

    def product(names: tuple[str, ...], cuts: tuple[int, ...], biased: bool) -> Product:
        weights, biases = (tuple(f"{prefix}{name}.{kind}" for name in names) for kind in ("weight", "bias"))
        return Product(weights, biases if biased else (), cuts)

    q_inputs = config.heads * config.head_dim
    head_cuts = tuple(range(0, q_inputs + 1, q_inputs // config.kv_heads))
    biases = config.biases
    qk_norms = (f"{prefix}self_attn.q_norm.weight", f"{prefix}self_attn.k_norm.weight")
    return LayerTensors(
        attention_norm=f"{prefix}input_layernorm.weight",
        qkv=product(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), (), biases.qkv),
        qk_norms=qk_norms if config.has_qk_norm else None,
        o=product(("self_attn.o_proj",), head_cuts, biases.o),
        ffn_norm=f"{prefix}post_attention_layernorm.weight",
        gate_up=product(("mlp.gate_proj", "mlp.up_proj"), (), biases.mlp),
        down=product(("mlp.down_proj",), even_cuts(config.ffn_size), biases.mlp),
    )


def _problems(checkpoint: Checkpoint, config: ModelConfig) -> list[str]:
    expected = dict(expected_shapes(config))
    optional = {HEAD} if config.tied_embeddings else set()
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


def expected_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every tensor that the config asks for."""
    hidden, ffn = config.hidden_size, config.ffn_size
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    linears = (
        ("self_attn.q_proj", q, hidden, config.biases.qkv),
        ("self_attn.k_proj", kv, hidden, config.biases.qkv),
        ("self_attn.v_proj", kv, hidden, config.biases.qkv),
        ("self_attn.o_proj", hidden, q, config.biases.o),
        ("mlp.gate_proj", ffn, hidden, config.biases.mlp),
        ("mlp.up_proj", ffn, hidden, config.biases.mlp),
        ("mlp.down_proj", hidden, ffn, config.biases.mlp),
    )
    yield EMBEDDING, (config.vocab_rows, hidden)
    for index in range(config.layers):
        prefix = f"model.layers.{index}."
        yield f"{prefix}input_layernorm.weight", (hidden,)
        yield f"{prefix}post_attention_layernorm.weight", (hidden,)
        if config.has_qk_norm:
            yield f"{prefix}self_attn.q_norm.weight", (config.head_dim,)
            yield f"{prefix}self_attn.k_norm.weight", (config.head_dim,)
        for name, outputs, inputs, biased in linears:
            yield f"{prefix}{name}.weight", (outputs, inputs)
            if biased:
                yield f"{prefix}{name}.bias", (outputs,)
    yield FINAL_NORM, (hidden,)
    if not config.tied_embeddings:
        yield HEAD, (config.vocab_rows, hidden)
