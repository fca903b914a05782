"""Reads what a model is from its config.json, and refuses what this engine does not compute.

Knows nothing of torch. Numbers come from strangers' files: each has bounds, and all problems are named at once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import TILE_TAG_PLAIN, KvLayout
from libs.engine.config_fields import Fields, shown
from libs.engine.families import FAMILIES, MAX_LAYERS, NO_BIASES, Biases, Family
from libs.engine.rope import Dynamic, Rope
from libs.engine.rope_config import MAX_TOKENS, read_rope
from libs.text.token_count import token_count

MAX_CONFIG_BYTES: Final = 1 << 20
MAX_EOS_IDS: Final = 64
NEUTRAL: Final = (("hidden_act", "silu"), ("pretraining_tp", 1), ("partial_rotary_factor", 1.0))


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers of one model. `heads` are query heads; `eos_ids` ascend.

    `vocab_size` counts the ids that have a token. The matrices of the checkpoint may have more rows, `vocab_rows`,
    padded to a round number: those are not even loaded, so no id without a token is ever drawn.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_size: int
    rms_eps: float
    rope: Rope
    max_position_tokens: int  # the longest sequence
    tied_embeddings: bool
    eos_ids: tuple[int, ...]
    biases: Biases = NO_BIASES
    has_qk_norm: bool = False  # queries and keys are normed, head by head, before they turn
    windows: tuple[int, ...] = ()  # per layer, how many positions a token sees; 0: all; empty: all in all layers
    padding_rows: int = 0  # of embedding and head, beyond `vocab_size`

    @property
    def vocab_rows(self) -> int:
        return self.vocab_size + self.padding_rows

    @property
    def variant(self) -> str:
        """What the model's numbers depend on beside its files; "" for nothing."""
        scaling = self.rope.scaling
        is_stretched = isinstance(scaling, Dynamic) and scaling.context_tokens > scaling.original_tokens
        return f"context of {self.max_position_tokens} tokens" if is_stretched else ""

    def window(self, layer: int) -> int:
        """How many positions a token sees in a layer, itself included; 0: all."""
        return self.windows[layer] if self.windows else 0

    def kv_layout(self, block_tokens: int, kv_dtype: str, tile_tag: str = TILE_TAG_PLAIN) -> KvLayout:
        """The layout of a pool for this model. ValueError for other block sizes or dtypes than the contract's."""
        return KvLayout(self.layers, self.kv_heads, self.head_dim, block_tokens, kv_dtype, tile_tag)


def load_model_config(model_path: Path, wanted_tokens: int = 0) -> ModelConfig:
    """Parse the configuration of a model directory and count its tokenizer's tokens, or read a .gguf file's header.

    Args:
        wanted_tokens: the longest sequence that will be asked of it; 0: what it allows. See `read_rope`.

    Raises: ConfigError that names every problem.
    """
    try:
        if model_path.suffix == ".gguf":
            return parse_model_config(_read_gguf(model_path), {}, wanted_tokens)
        generation, tokenizer = model_path / "generation_config.json", model_path / "tokenizer.json"
        parsed = parse_model_config(
            _read_json(model_path / "config.json"), _read_json(generation) if generation.exists() else {}, wanted_tokens
        )
        return _without_padding(parsed, token_count(tokenizer)) if tokenizer.exists() else parsed
    except OSError as error:
        raise ConfigError(f"model {model_path}: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"model {model_path}: {error.message}") from error


def parse_model_config(config: Mapping[str, Any], generation: Mapping[str, Any], wanted_tokens: int = 0) -> ModelConfig:
    """The model that a Hugging Face config describes.

    Args:
        config: content of config.json.
        generation: content of generation_config.json, or empty; its end-of-sequence ids come before those of `config`.
        wanted_tokens: as for `load_model_config`.

    Raises: ConfigError with all problems in one line.
    """
    fields = Fields(config, [])
    architecture, family = _family(fields)
    for name, neutral in NEUTRAL:
        fields.only(name, neutral)
    if fields.value("quantization_config") is not None:
        fields.refuse("quantization_config", f"{shown(fields.value('quantization_config'))} is not supported")
    heads = fields.integer("num_attention_heads", 1, 1024)
    hidden = fields.integer("hidden_size", 1, 1 << 17)
    vocab = fields.integer("vocab_size", 1, 1 << 24)
    layers = fields.integer("num_hidden_layers", 1, MAX_LAYERS)
    declared_tokens = fields.integer("max_position_embeddings", 1, MAX_TOKENS, default=family.positions)
    rope, max_position_tokens = read_rope(fields, declared_tokens, wanted_tokens)
    parsed = ModelConfig(
        architecture=architecture,
        vocab_size=vocab,
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", 1, 1024, default=heads),
        head_dim=fields.integer("head_dim", 2, 1024, default=family.head_dim or hidden // heads),
        ffn_size=fields.integer("intermediate_size", 1, 1 << 20),
        rms_eps=fields.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
        rope=rope,
        max_position_tokens=max_position_tokens,
        tied_embeddings=fields.flag("tie_word_embeddings"),
        eos_ids=_eos_ids(fields, generation, vocab),
        biases=family.biases(fields),
        has_qk_norm=family.has_qk_norm,
        windows=family.windows(fields, layers),
    )
    _check_heads(parsed, fields.problems)
    if fields.problems:
        raise ConfigError("; ".join(fields.problems))
    return parsed


def _family(fields: Fields) -> tuple[str, Family]:
    named = fields.value("architectures")
    if isinstance(named, list) and len(named) == 1 and named[0] in FAMILIES:
        return str(named[0]), FAMILIES[named[0]]
    raise ConfigError(f"architecture {shown(named)} is not supported, only {', '.join(FAMILIES)}")


def _check_heads(parsed: ModelConfig, problems: list[str]) -> None:
    if parsed.heads % parsed.kv_heads:
        problems.append(f"{parsed.heads} query heads cannot share {parsed.kv_heads} KV heads evenly")
    if parsed.head_dim % 2:
        problems.append(f"head_dim must be even, not {parsed.head_dim}")
    if isinstance(parsed.rope.scaling, Dynamic) and parsed.head_dim < 4:
        problems.append(f"head_dim must be 4 or more with dynamic RoPE, not {parsed.head_dim}")


def _eos_ids(fields: Fields, generation: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    named = generation.get("eos_token_id")
    named = fields.value("eos_token_id") if named is None else named
    ids = named if isinstance(named, list) else [] if named is None else [named]
    whole = all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab_size for i in ids)
    if not whole or len(ids) > MAX_EOS_IDS:
        fields.refuse("eos_token_id", f"must hold at most {MAX_EOS_IDS} ids of the vocabulary: {shown(named)}")
        return ()
    return tuple(sorted(set(ids)))


def _without_padding(parsed: ModelConfig, tokens: int) -> ModelConfig:
    """The model as far as its tokenizer names tokens; ids of the tokenizer that it has no rows for stay outside."""
    kept = min(parsed.vocab_size, tokens)
    eos_ids = tuple(token_id for token_id in parsed.eos_ids if token_id < kept)
    return replace(parsed, vocab_size=kept, padding_rows=parsed.vocab_size - kept, eos_ids=eos_ids)


def _read_json(path: Path) -> Mapping[str, Any]:
    with path.open("rb") as file:
        text = file.read(MAX_CONFIG_BYTES + 1)
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path.name} is larger than {MAX_CONFIG_BYTES} bytes")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path.name} does not hold an object")
    return content


def _read_gguf(path: Path) -> Mapping[str, Any]:
    from libs.engine.gguf_convert import model_config  # few need it, and it takes a tenth of a second
    from libs.engine.gguf_file import GgufError, read_gguf
    from libs.engine.gguf_tensors import llama_shape

    try:
        file = read_gguf(path)
        return model_config(file, llama_shape(file))
    except GgufError as error:
        raise ConfigError(str(error)) from error
