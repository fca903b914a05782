"""Writes a GGUF file of a one-layer Llama with a byte-level vocabulary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np

from libs.text.tokenizer import byte_characters

HIDDEN, HEADS, FFN, HEAD_DIM = 32, 2, 64, 16
WORDS: Final = ["<s>", "</s>", *byte_characters(), "ab"]

Change = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


def tiny_gguf(path: Path, change: Change | None = None) -> Path:
    """Write a one-layer Llama with byte-level vocabulary; change edits its keys and tensors before they are written."""
    random = np.random.default_rng(7)
    shapes = {
        "token_embd.weight": (len(WORDS), HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "blk.0.attn_norm.weight": (HIDDEN,),
        "blk.0.attn_q.weight": (HIDDEN, HIDDEN),
        "blk.0.attn_k.weight": (HEAD_DIM, HIDDEN),
        "blk.0.attn_v.weight": (HEAD_DIM, HIDDEN),
        "blk.0.attn_output.weight": (HIDDEN, HIDDEN),
        "blk.0.ffn_norm.weight": (HIDDEN,),
        "blk.0.ffn_gate.weight": (FFN, HIDDEN),
        "blk.0.ffn_up.weight": (FFN, HIDDEN),
        "blk.0.ffn_down.weight": (HIDDEN, FFN),
    }
    tensors = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    keys: dict[str, Any] = {
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(WORDS) - 2),
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
    if change is not None:
        change(keys, tensors)
    writer = gguf.GGUFWriter(path, "llama")
    add: dict[type, Callable[[str, Any], None]] = {
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in keys.items():
        add[type(value)](key, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    for part in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{part}_to_file")()
    writer.close()
    return path
