"""Knows how a Llama model lies in a GGUF file: its numbers, and its tensors under Hugging Face names in float32."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from libs.engine.gguf_file import Float32Array, GgufError, GgufFile

# GGUF name, Hugging Face name, and the shape in words of `_sizes`; rows first, as stored.
MODEL_TENSORS: Final = (
    ("token_embd.weight", "model.embed_tokens.weight", ("vocab", "hidden")),
    ("output_norm.weight", "model.norm.weight", ("hidden",)),
)
UNTIED_HEAD: Final = ("output.weight", "lm_head.weight", ("vocab", "hidden"))
LAYER_TENSORS: Final = (
    ("attn_norm.weight", "input_layernorm.weight", ("hidden",)),
    ("attn_q.weight", "self_attn.q_proj.weight", ("q", "hidden")),
    ("attn_k.weight", "self_attn.k_proj.weight", ("kv", "hidden")),
    ("attn_v.weight", "self_attn.v_proj.weight", ("kv", "hidden")),
    ("attn_output.weight", "self_attn.o_proj.weight", ("hidden", "q")),
    ("ffn_norm.weight", "post_attention_layernorm.weight", ("hidden",)),
    ("ffn_gate.weight", "mlp.gate_proj.weight", ("ffn", "hidden")),
    ("ffn_up.weight", "mlp.up_proj.weight", ("ffn", "hidden")),
    ("ffn_down.weight", "mlp.down_proj.weight", ("hidden", "ffn")),
)


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """The numbers that fix a Llama model's tensors."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_positions_tokens: int
    rope_theta: float
    rms_norm_eps: float
    tied_head: bool


def llama_shape(file: GgufFile) -> LlamaShape:
    """The model's numbers, checked against each other. GgufError for another architecture or scaled RoPE."""
    if (architecture := file.text("general.architecture")) != "llama":
        raise GgufError(f"architecture {architecture} is not supported")
    if "rope_freqs.weight" in file.tensors or "llama.rope.scaling.type" in file.metadata:
        raise GgufError("scaled RoPE is not supported")
    hidden, heads = file.integer("llama.embedding_length"), file.integer("llama.attention.head_count")
    if heads == 0 or hidden % heads:
        raise GgufError(f"{hidden} hidden channels cannot be cut into {heads} heads")
    kv_heads = file.integer("llama.attention.head_count_kv", heads)
    head_dim = file.integer("llama.attention.key_length", hidden // heads)
    if kv_heads == 0 or heads % kv_heads or head_dim == 0 or head_dim % 2:
        raise GgufError(f"{heads} heads of {head_dim} channels cannot share {kv_heads} KV heads")
    if file.integer("llama.rope.dimension_count", head_dim) != head_dim:
        raise GgufError("RoPE over a part of the head is not supported")
    return LlamaShape(
        layers=file.integer("llama.block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=file.integer("llama.feed_forward_length"),
        vocab=file.integer("llama.vocab_size", len(file.texts("tokenizer.ggml.tokens"))),
        max_positions_tokens=file.integer("llama.context_length"),
        rope_theta=file.number("llama.rope.freq_base", 10000.0),
        rms_norm_eps=file.number("llama.attention.layer_norm_rms_epsilon"),
        tied_head="output.weight" not in file.tensors,
    )


def llama_tensors(file: GgufFile, shape: LlamaShape) -> Iterator[tuple[str, Float32Array]]:
    """Yield (Hugging Face name, float32 tensor) for each tensor of the model, one in memory at a time.

    Raises: GgufError when a tensor is missing, has a shape other than the model's numbers say, or is unknown.
    """
    wanted = [*MODEL_TENSORS] if shape.tied_head else [*MODEL_TENSORS, UNTIED_HEAD]
    for layer in range(shape.layers):
        wanted += [(f"blk.{layer}.{a}", f"model.layers.{layer}.{b}", axes) for a, b, axes in LAYER_TENSORS]
    if unknown := sorted(file.tensors.keys() - {name for name, _, _ in wanted}):
        raise GgufError(f"tensor {unknown[0]} is not part of a Llama model")
    sizes = {
        "vocab": shape.vocab,
        "hidden": shape.hidden,
        "ffn": shape.intermediate,
        "q": shape.heads * shape.head_dim,
        "kv": shape.kv_heads * shape.head_dim,
    }
    for name, hf_name, axes in wanted:
        tensor = file.float32(name)
        if tensor.shape != tuple(sizes[axis] for axis in axes):
            raise GgufError(f"tensor {name} has shape {tensor.shape}")
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            tensor = half_split_rows(tensor, shape.head_dim)
        yield hf_name, tensor


def half_split_rows(weight_RI: Float32Array, head_dim: int) -> Float32Array:
    """Reorder projection rows from rotary pairs (2i, 2i + 1) to pairs (i, i + head_dim / 2).

    Args: weight_RI: [heads * head_dim, inputs]; the order of heads stays.
    Source: the inverse of the permutation that llama.cpp's converter applies to q_proj and k_proj.
    """
    rows, inputs = weight_RI.shape
    pairs = weight_RI.reshape(rows // head_dim, head_dim // 2, 2, inputs)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, inputs)
