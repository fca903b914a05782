"""Which pieces of memory a packed model consists of, how large they are, and how a checkpoint's tensors fill them.

Axes: N outputs, K inputs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from libs.engine.checkpoint import Checkpoint
from libs.engine.model_config import ModelConfig
from libs.engine.native.packed_file import Bytes
from libs.engine.safetensors_file import Array
from libs.engine.tensors import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    Product,
    expected_shapes,
    layer_tensors,
)

FLOAT32_BYTES: Final = 4
BIAS: Final = ".bias"
TABLES: Final = (Product((EMBEDDING,), (), ()), Product((HEAD,), (), ()))  # rows without a token are left out
QK_NORMS: Final = ("q_norm", "k_norm")


@dataclass(frozen=True, slots=True)
class Linear:
    """One packed weight."""

    name: str
    product: Product
    outputs: int
    inputs: int


PackedBytes = Callable[[Linear], int]
PackLinear = Callable[[Linear, Array, bool, Bytes], None]  # [N, K] source, whether it is bfloat16 bits, where to


def linears(config: ModelConfig) -> Iterator[Linear]:
    """Every packed weight of the model, in the order of their use."""
    shapes = dict(expected_shapes(config))

    def linear(name: str, product: Product) -> Linear:
        first = shapes[product.weights[0]]
        outputs = sum(shapes[weight][0] for weight in product.weights)
        return Linear(name, product, config.vocab_size if product in TABLES else outputs, first[1])

    yield linear("embedding", TABLES[0])
    for index in range(config.layers):
        layer = layer_tensors(config, index)
        for kind, product in (("qkv", layer.qkv), ("o", layer.o), ("gate_up", layer.gate_up), ("down", layer.down)):
            yield linear(f"{index}.{kind}", product)
    if not config.tied_embeddings:
        yield linear("head", TABLES[1])


def norms(config: ModelConfig) -> Iterator[tuple[str, str, int]]:
    """(part, tensor, width) of every norm's weight."""
    hidden = config.hidden_size
    for index in range(config.layers):
        layer = layer_tensors(config, index)
        yield f"{index}.attention_norm", layer.attention_norm, hidden
        yield f"{index}.ffn_norm", layer.ffn_norm, hidden
        for kind, tensor in zip(QK_NORMS, layer.qk_norms or (), strict=False):
            yield f"{index}.{kind}", tensor, config.head_dim
    yield "final_norm", FINAL_NORM, hidden


def part_sizes(config: ModelConfig, packed_bytes: PackedBytes) -> dict[str, int]:
    """Bytes of every part, by name."""
    sizes = {}
    for linear in linears(config):
        sizes[linear.name] = packed_bytes(linear)
        if linear.product.biases:
            sizes[linear.name + BIAS] = FLOAT32_BYTES * linear.outputs
    sizes |= {part: FLOAT32_BYTES * width for part, _, width in norms(config)}
    table = FLOAT32_BYTES * config.max_position_tokens * config.head_dim // 2
    return sizes | {"cos": table, "sin": table}


def fill_parts(
    parts: Mapping[str, Bytes], config: ModelConfig, checkpoint: Checkpoint, dtype: str, pack: PackLinear
) -> Iterator[int]:
    """Write every part of the model, yielding how many layers are done.

    Args:
        dtype: the rounding class: norms and biases are rounded to it (to bfloat16 in the classes of integers) and kept
            in float32.
        pack: rounds and lays out a weight.
    """
    for part, tensor, _ in norms(config):
        parts[part].view(np.float32)[:] = _vector(checkpoint, tensor, dtype)
    tables = config.rope.tables(config.head_dim, config.max_position_tokens)
    for part, table in zip(("cos", "sin"), tables, strict=True):
        parts[part].view(np.float32)[:] = table.reshape(-1)
    for linear in linears(config):
        source, is_bfloat16 = _joined(checkpoint, linear.product.weights)
        pack(linear, source[: linear.outputs], is_bfloat16, parts[linear.name])
        if biases := linear.product.biases:
            joined = np.concatenate([_vector(checkpoint, name, dtype) for name in biases])
            parts[linear.name + BIAS].view(np.float32)[:] = joined
        layer, dot, kind = linear.name.partition(".")
        if dot and kind == "down":
            yield int(layer) + 1


def to_float32(array: Array, *, is_bfloat16: bool) -> npt.NDArray[np.float32]:
    """Exact: every value of the three types is one of float32."""
    if is_bfloat16:
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32)


def rounded(array: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[np.float32]:
    """To the nearest float32 or bfloat16, as the class has it, ties to even; NaN stays NaN."""
    if dtype == "float32":
        return array
    bits = array.view(np.uint32)
    up = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    nearest = (up & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(array), array, nearest)


def _vector(checkpoint: Checkpoint, name: str, dtype: str) -> npt.NDArray[np.float32]:
    return rounded(to_float32(checkpoint.read(name), is_bfloat16=checkpoint.dtypes[name] == "BF16"), dtype)


def _joined(checkpoint: Checkpoint, names: tuple[str, ...]) -> tuple[Array, bool]:
    """Weights joined along N, in their own type where they agree on one, else in float32."""
    arrays, types = [checkpoint.read(name) for name in names], {checkpoint.dtypes[name] for name in names}
    if len(types) > 1:
        flags = [checkpoint.dtypes[name] == "BF16" for name in names]
        arrays = [to_float32(array, is_bfloat16=flag) for array, flag in zip(arrays, flags, strict=True)]
    joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return np.ascontiguousarray(joined), types == {"BF16"}
