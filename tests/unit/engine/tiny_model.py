"""Random models of a few thousand weights, written as a Hugging Face directory."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 80,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 131,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}


def tiny_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tensors under their Hugging Face names, of the shapes that the config asks for."""
    generator = torch.Generator().manual_seed(seed)
    hidden, ffn, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).mul_(2 / shape[-1] ** 0.5)

    tensors = {"model.embed_tokens.weight": weight(config["vocab_size"], hidden), "model.norm.weight": weight(hidden)}
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = weight(config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors[f"{prefix}input_layernorm.weight"] = 1 + weight(hidden)
        tensors[f"{prefix}post_attention_layernorm.weight"] = 1 + weight(hidden)
        if config["architectures"] == ["Qwen3ForCausalLM"]:
            tensors[f"{prefix}self_attn.q_norm.weight"] = 1 + weight(head_dim)
            tensors[f"{prefix}self_attn.k_norm.weight"] = 1 + weight(head_dim)
        for name, outputs, inputs, biased in (
            ("self_attn.q_proj", q, hidden, config.get("attention_bias")),
            ("self_attn.k_proj", kv, hidden, config.get("attention_bias")),
            ("self_attn.v_proj", kv, hidden, config.get("attention_bias")),
            ("self_attn.o_proj", hidden, q, config.get("attention_bias")),
            ("mlp.gate_proj", ffn, hidden, config.get("mlp_bias")),
            ("mlp.up_proj", ffn, hidden, config.get("mlp_bias")),
            ("mlp.down_proj", hidden, ffn, config.get("mlp_bias")),
        ):
            tensors[f"{prefix}{name}.weight"] = weight(outputs, inputs)
            if biased:
                tensors[f"{prefix}{name}.bias"] = weight(outputs)
    return tensors


def write_model(model_dir: Path, tensors: dict[str, torch.Tensor] | None = None, **changes: Any) -> Path:
    """A model directory with CONFIG changed by `changes`; tensors drawn to fit unless given."""
    config = CONFIG | changes
    model_dir.mkdir(exist_ok=True)
    (model_dir / "config.json").write_text(json.dumps(config))
    save_file(tiny_tensors(config) if tensors is None else tensors, model_dir / "model.safetensors")
    return model_dir
