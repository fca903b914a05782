"""Writes a Hugging Face Llama directory as GGUF, so that a peer reads the very same weights, or those in eight bits."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter, LlamaFileType
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from libs.contracts.errors import ConfigError
from libs.engine.checkpoint import open_checkpoint
from libs.engine.families import Biases
from libs.engine.gguf_convert import bf16_bits
from libs.engine.gguf_tensors import LAYER_TENSORS, MODEL_TENSORS, UNTIED_HEAD
from libs.engine.gguf_tokenizer import CONTROL, USER_DEFINED
from libs.engine.model_config import ModelConfig, load_model_config
from libs.engine.native.parts import to_float32

Bits = npt.NDArray[np.uint16]

FILE_TYPES: Final = {
    GGMLQuantizationType.BF16: LlamaFileType.MOSTLY_BF16,
    GGMLQuantizationType.Q8_0: LlamaFileType.MOSTLY_Q8_0,
}
NORMAL: Final = 1  # token type of the GGUF specification
ROTARY: Final = ("attn_q.weight", "attn_k.weight")


def write_gguf(model_dir: Path, gguf_path: Path, kind: GGMLQuantizationType = GGMLQuantizationType.BF16) -> None:
    """Convert the model, its matrices to BF16 or Q8_0; gguf_path appears complete or not at all.

    Raises: ConfigError for a damaged model, and for one that is not a plain Llama without padding.
    """
    model = load_model_config(model_dir)
    if model.architecture != "LlamaForCausalLM" or model.rope.scaling or model.padding_rows or model.biases != Biases():
        raise ConfigError(f"{model_dir} is not a plain Llama model, which alone is written as GGUF")
    part = gguf_path.with_suffix(".part")
    writer = GGUFWriter(part, "llama")
    writer.add_file_type(FILE_TYPES[kind])
    _add_numbers(writer, model, model_dir.name)
    _add_tokenizer(writer, model_dir, model.vocab_size)
    _add_tensors(writer, model, model_dir, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(gguf_path)


def rotary_pair_rows(weight_RI: Bits, head_dim: int) -> Bits:
    """Rows from rotary pairs (i, i + head_dim / 2) to pairs (2i, 2i + 1), as GGUF's llama has them.

    The inverse of libs.engine.gguf_tensors.half_split_rows.
    """
    rows, inputs = weight_RI.shape
    halves = weight_RI.reshape(rows // head_dim, 2, head_dim // 2, inputs)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, inputs)


def _add_numbers(writer: GGUFWriter, model: ModelConfig, name: str) -> None:
    writer.add_name(name)
    writer.add_vocab_size(model.vocab_size)
    writer.add_context_length(model.max_position_tokens)
    writer.add_embedding_length(model.hidden_size)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.ffn_size)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_rope_dimension_count(model.head_dim)
    writer.add_rope_freq_base(model.rope.theta)
    writer.add_layer_norm_rms_eps(model.rms_eps)


def _add_tokenizer(writer: GGUFWriter, model_dir: Path, vocab_size: int) -> None:
    tokenizer = json.loads((model_dir / "tokenizer.json").read_bytes())
    config = json.loads((model_dir / "tokenizer_config.json").read_bytes())
    ids: dict[str, int] = dict(tokenizer["model"]["vocab"])
    kinds = [NORMAL] * vocab_size
    for token in tokenizer["added_tokens"]:
        ids[token["content"]] = token["id"]
        kinds[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if "Digits" in json.dumps(tokenizer["pre_tokenizer"]) else "gpt-2")
    writer.add_token_list(sorted(ids, key=ids.__getitem__))
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_add_bos_token(bool(config.get("add_bos_token")))
    _add_special_ids(writer, config, ids)


def _add_special_ids(writer: GGUFWriter, config: dict[str, Any], ids: dict[str, int]) -> None:
    adders = {
        "bos_token": writer.add_bos_token_id,
        "eos_token": writer.add_eos_token_id,
        "pad_token": writer.add_pad_token_id,
        "unk_token": writer.add_unk_token_id,
    }
    for role, add in adders.items():
        if config.get(role) in ids:
            add(ids[config[role]])
    if "chat_template" in config:
        writer.add_chat_template(config["chat_template"])


def _add_tensors(writer: GGUFWriter, model: ModelConfig, model_dir: Path, kind: GGMLQuantizationType) -> None:
    wanted = [*MODEL_TENSORS] if model.tied_embeddings else [*MODEL_TENSORS, UNTIED_HEAD]
    for layer in range(model.layers):
        wanted += [(f"blk.{layer}.{a}", f"model.layers.{layer}.{b}", axes) for a, b, axes in LAYER_TENSORS]
    checkpoint = open_checkpoint(model_dir)
    for name, hf_name, axes in wanted:
        tensor = checkpoint.read(hf_name)
        bits = tensor if tensor.dtype == np.uint16 else bf16_bits(tensor.astype(np.float32))
        if len(axes) == 1:  # norms, which llama.cpp reads in float32 only
            writer.add_tensor(name, to_float32(bits, is_bfloat16=True))
            continue
        if name.endswith(ROTARY):
            bits = rotary_pair_rows(bits, model.head_dim)
        weights = np.ascontiguousarray(bits).view(np.uint8)
        if kind is not GGMLQuantizationType.BF16:
            weights = quantize(to_float32(bits, is_bfloat16=True), kind)
        writer.add_tensor(name, weights, raw_dtype=kind)
