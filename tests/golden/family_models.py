"""Tiny random models, one of each family and kind of rotary positions: configs, weights and prompts. Numpy alone.

Both sides draw the same weights: the script that writes the golden ids, and the test that compares with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

PROMPT_TOKENS = (20, 300)  # within a piece of attention, and beyond
NEW_TOKENS = 24
BASE: Mapping[str, Any] = MappingProxyType(
    {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": 160,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
)
YARN = {"factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Case:
    """A model; `plain` are the changes that leave its feature out, which must change its ids."""

    name: str
    model_type: str
    config: Mapping[str, Any] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)
    wanted_tokens: int = 0  # for dynamic RoPE beyond the declared length, the length it is fixed for

    @property
    def full_config(self) -> dict[str, Any]:
        """The content of config.json."""
        architecture = f"{self.model_type.capitalize()}ForCausalLM"
        config = {**BASE, "architectures": [architecture], "model_type": self.model_type, **self.config}
        if "rope_parameters" in config:
            del config["rope_theta"]  # newer files have it among these
        return config

    @property
    def has_qk_norm(self) -> bool:
        return self.model_type == "qwen3"

    @property
    def biased(self) -> frozenset[str]:
        """The products that add a bias."""
        attention, qkv = bool(self.config.get("attention_bias")), {"q_proj", "k_proj", "v_proj"}
        of_attention = {*qkv, "o_proj"} if attention else qkv if self.model_type == "qwen2" else set()
        return frozenset(
            of_attention | ({"gate_proj", "up_proj", "down_proj"} if self.config.get("mlp_bias") else set())
        )


def _scaled(name: str, scaling: Mapping[str, Any], **config: Any) -> Case:
    return Case(name, "llama", {"rope_scaling": dict(scaling), **config}, {"rope_scaling": None})


CASES = (
    Case("llama", "llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
    Case("llama-biases", "llama", {"attention_bias": True, "mlp_bias": True}, {"attention_bias": False}),
    _scaled("llama-linear", {"type": "linear", "factor": 3.0}),
    _scaled("llama-dynamic", {"type": "dynamic", "factor": 4.0}),
    Case(
        "llama-dynamic-stretched",
        "llama",
        {"rope_scaling": {"rope_type": "dynamic", "factor": 8.0}, "max_position_embeddings": 64},
        {"rope_scaling": None},
        wanted_tokens=400,
    ),
    _scaled("llama-yarn", {"type": "yarn", **YARN}, max_position_embeddings=128),
    _scaled("llama-llama3", LLAMA3),
    Case("mistral", "mistral", {"sliding_window": 12, "head_dim": 32}, {"sliding_window": None}),
    Case("mistral-wide", "mistral", {"sliding_window": 280}, {"sliding_window": None}),
    Case("mistral-whole", "mistral", {"sliding_window": None}),
    Case("qwen2", "qwen2", {"sliding_window": 8, "max_window_layers": 1}),
    Case(
        "qwen2-window",
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1, "num_hidden_layers": 3},
        {"use_sliding_window": False},
    ),
    Case("qwen3", "qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    Case(
        "qwen3-yarn",
        "qwen3",
        {
            "head_dim": 32,
            "attention_bias": True,
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 5000.0, "attention_factor": 1.3, **YARN},
        },
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    ),
)


def prompt(tokens: int, seed: int) -> list[int]:
    return [(7 * i * (1 + i // 53) + 3 * seed) % 157 for i in range(tokens)]


def tensors(case: Case, seed: int) -> dict[str, Array]:
    """Random float32 weights under their Hugging Face names. The stream of a RandomState never changes."""
    draw, config = np.random.RandomState(seed), case.full_config
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim

    def weight(*shape: int, scale: float) -> Array:
        return (scale * draw.standard_normal(shape)).astype(np.float32)

    made = {"model.embed_tokens.weight": weight(config["vocab_size"], hidden, scale=1.0)}
    made["model.norm.weight"] = 1 + weight(hidden, scale=0.2)
    if not config["tie_word_embeddings"]:
        made["lm_head.weight"] = weight(config["vocab_size"], hidden, scale=1.0)
    shapes = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            made[f"{prefix}{norm}.weight"] = 1 + weight(hidden, scale=0.2)
        for norm in ("q_norm", "k_norm") if case.has_qk_norm else ():
            made[f"{prefix}self_attn.{norm}.weight"] = 1.5 + weight(head_dim, scale=0.5)
        for name, (outputs, inputs) in shapes.items():
            made[f"{prefix}{name}.weight"] = weight(outputs, inputs, scale=2 / inputs**0.5)
            if name.partition(".")[2] in case.biased:
                made[f"{prefix}{name}.bias"] = weight(outputs, scale=0.5)
    return made
