"""Reads what a Llama-family model is from its config.json, and refuses what this engine does not compute.

Knows nothing of torch. Numbers come from strangers' files: each has bounds, and all problems are named at once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import TILE_TAG_PLAIN, KvLayout

ARCHITECTURES: Final = ("LlamaForCausalLM", "MistralForCausalLM")
MAX_CONFIG_BYTES: Final = 1 << 20
MAX_EOS_IDS: Final = 64


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers of one model. `heads` are query heads; `eos_ids` ascend."""

    architecture: str
    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_size: int
    rms_eps: float
    rope_theta: float
    max_position_tokens: int
    tied_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    eos_ids: tuple[int, ...]

    def kv_layout(self, block_tokens: int, kv_dtype: str, tile_tag: str = TILE_TAG_PLAIN) -> KvLayout:
        """The layout of a pool for this model. ValueError for other block sizes or dtypes than the contract's."""
        return KvLayout(self.layers, self.kv_heads, self.head_dim, block_tokens, kv_dtype, tile_tag)


def load_model_config(model_path: Path) -> ModelConfig:
    """Parse config.json and generation_config.json of a model directory, or the header of a .gguf file.

    Raises: ConfigError that names every problem.
    """
    try:
        if model_path.suffix == ".gguf":
            return parse_model_config(_read_gguf(model_path), {})
        generation = model_path / "generation_config.json"
        return parse_model_config(
            _read_json(model_path / "config.json"), _read_json(generation) if generation.exists() else {}
        )
    except OSError as error:
        raise ConfigError(f"model {model_path}: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"model {model_path}: {error.message}") from error


def parse_model_config(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
    """The model that a Hugging Face config describes.

    Args:
        config: content of config.json.
        generation: content of generation_config.json, or empty; its end-of-sequence ids come before those of `config`.

    Raises: ConfigError with all problems in one line.
    """
    fields = _Fields(config)
    architecture = fields.architecture()
    fields.refuse_unsupported()
    heads = fields.integer("num_attention_heads", 1, 1024)
    hidden = fields.integer("hidden_size", 1, 1 << 17)
    vocab = fields.integer("vocab_size", 1, 1 << 24)
    parsed = ModelConfig(
        architecture=architecture,
        vocab_size=vocab,
        hidden_size=hidden,
        layers=fields.integer("num_hidden_layers", 1, 1024),
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", 1, 1024, default=heads),
        head_dim=fields.integer("head_dim", 2, 1024, default=hidden // heads),
        ffn_size=fields.integer("intermediate_size", 1, 1 << 20),
        rms_eps=fields.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
        rope_theta=fields.rope_theta(),
        max_position_tokens=fields.integer("max_position_embeddings", 1, 1 << 24, default=2048),
        tied_embeddings=fields.flag("tie_word_embeddings"),
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        eos_ids=fields.eos_ids(generation, vocab),
    )
    if parsed.heads % parsed.kv_heads:
        fields.problems.append(f"{parsed.heads} query heads cannot share {parsed.kv_heads} KV heads evenly")
    if parsed.head_dim % 2:
        fields.problems.append(f"head_dim must be even, not {parsed.head_dim}")
    if fields.problems:
        raise ConfigError("; ".join(fields.problems))
    return parsed


class _Fields:
    """Typed reads of an untyped config; a bad value becomes a problem and a stand-in that keeps parsing going."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self.problems: list[str] = []

    def architecture(self) -> str:
        named = self._config.get("architectures")
        if isinstance(named, list) and len(named) == 1 and named[0] in ARCHITECTURES:
            return str(named[0])
        self.problems.append(f"architecture {_shown(named)} is not supported, only {' and '.join(ARCHITECTURES)}")
        return ""

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self._config.get(name)
        value = default if value is None else value
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.problems.append(f"{name} must be a whole number from {low} to {high}, not {_shown(value)}")
        return low

    def number(self, name: str, low: float, high: float, default: float) -> float:
        return self._bounded(name, self._config.get(name), low, high, default)

    def _bounded(self, name: str, value: object, low: float, high: float, default: float) -> float:
        value = default if value is None else value
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        self.problems.append(f"{name} must be a number from {low:g} to {high:g}, not {_shown(value)}")
        return low

    def flag(self, name: str) -> bool:
        value = self._config.get(name, False)
        if not isinstance(value, bool):
            self.problems.append(f"{name} must be true or false, not {_shown(value)}")
        return value is True

    def rope_theta(self) -> float:
        """The base of RoPE, from its old place or, in newer files, from rope_parameters."""
        scaling = self._config.get("rope_parameters") or self._config.get("rope_scaling") or {}
        if not isinstance(scaling, Mapping):
            self.problems.append(f"rope parameters must be an object, not {_shown(scaling)}")
            return 1.0
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind != "default":
            self.problems.append(f"RoPE of kind {_shown(kind)} is not supported, only default")
        theta = scaling.get("rope_theta", self._config.get("rope_theta"))
        return self._bounded("rope_theta", theta, 1.0, 1e12, default=10000.0)

    def refuse_unsupported(self) -> None:
        """Features that change the arithmetic and that this engine does not have."""
        for name, neutral in (("hidden_act", "silu"), ("pretraining_tp", 1), ("partial_rotary_factor", 1.0)):
            if (value := self._config.get(name, neutral)) != neutral:
                self.problems.append(f"{name} {_shown(value)} is not supported, only {neutral}")
        for name in ("sliding_window", "quantization_config"):
            if (value := self._config.get(name)) is not None:
                self.problems.append(f"{name} {_shown(value)} is not supported")

    def eos_ids(self, generation: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
        named = generation.get("eos_token_id")
        named = self._config.get("eos_token_id") if named is None else named
        ids = named if isinstance(named, list) else [] if named is None else [named]
        whole = all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab_size for i in ids)
        if not whole or len(ids) > MAX_EOS_IDS:
            self.problems.append(f"eos_token_id must hold at most {MAX_EOS_IDS} ids of the vocabulary: {_shown(named)}")
            return ()
        return tuple(sorted(set(ids)))


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


def _shown(value: object) -> str:
    return repr(value)[:80]
