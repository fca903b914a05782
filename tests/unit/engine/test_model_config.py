"""Reading a model's config."""

import json
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.errors import ConfigError
from libs.engine.model_config import load_model_config, parse_model_config
from tests.unit.engine.tiny_model import CONFIG


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in CONFIG.items() if name not in names}


def test_numbers_come_from_the_config() -> None:
    """Every number of a Llama config reaches the parsed one."""
    config = parse_model_config(CONFIG, {})

    assert (config.hidden_size, config.layers, config.heads, config.kv_heads, config.head_dim) == (48, 2, 4, 2, 16)
    assert (config.ffn_size, config.vocab_size, config.max_position_tokens) == (80, 131, 1024)
    assert (config.rms_eps, config.rope_theta, config.tied_embeddings) == (1e-5, 10000.0, True)
    assert (config.attention_bias, config.mlp_bias) == (False, False)


def test_absent_fields_take_the_formats_defaults() -> None:
    """Without kv heads and head_dim, every query head has keys of its own and the hidden size is shared out."""
    config = parse_model_config(without("num_key_value_heads", "head_dim", "tie_word_embeddings"), {})

    assert (config.kv_heads, config.head_dim, config.tied_embeddings) == (4, 12, False)


def test_newer_files_keep_theta_among_the_rope_parameters() -> None:
    """rope_parameters of kind default are read like rope_theta."""
    newer = without("rope_theta") | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}

    assert parse_model_config(newer, {}).rope_theta == 5e5


@pytest.mark.parametrize(
    ("config_ids", "generation_ids", "expected"),
    [(2, None, (2,)), (2, [7, 2, 7], (2, 7)), ([5, 3], None, (3, 5)), (None, None, ()), (2, 0, (0,))],
)
def test_generation_config_names_the_ends_of_sequence(
    config_ids: Any, generation_ids: Any, expected: tuple[int, ...]
) -> None:
    """One id, a list or none; generation_config.json comes before config.json."""
    parsed = parse_model_config(CONFIG | {"eos_token_id": config_ids}, {"eos_token_id": generation_ids})

    assert parsed.eos_ids == expected


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"architectures": "LlamaForCausalLM"}, "architecture"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "linear"),
        ({"rope_scaling": 3}, "rope parameters"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"pretraining_tp": 2}, "pretraining_tp"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"vocab_size": 1 << 40}, "vocab_size"),
        ({"hidden_size": "48"}, "hidden_size"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": -1}, "rope_theta"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"num_key_value_heads": 3}, "3 KV heads"),
        ({"head_dim": 15}, "even"),
        ({"eos_token_id": 131}, "eos_token_id"),
        ({"eos_token_id": ["2"]}, "eos_token_id"),
        ({"eos_token_id": list(range(100))}, "eos_token_id"),
    ],
)
def test_refuses_what_it_cannot_compute(change: dict[str, Any], named: str) -> None:
    """An unsupported feature or a number out of bounds is named."""
    with pytest.raises(ConfigError, match=named):
        parse_model_config(CONFIG | change, {})


def test_all_problems_are_named_at_once() -> None:
    """A person mends the file in one go."""
    with pytest.raises(ConfigError, match=r"gelu.*vocab_size.*rms_norm_eps"):
        parse_model_config(CONFIG | {"hidden_act": "gelu", "vocab_size": 0, "rms_norm_eps": 2}, {})


@pytest.mark.parametrize(
    ("text", "reason"), [(None, "config.json"), ("{", "not JSON"), ("[]", "object"), ("[" * 100_000, "not JSON")]
)
def test_a_bad_file_names_the_model_and_the_reason(tmp_path: Path, text: str | None, reason: str) -> None:
    """Missing, broken, nested beyond reason, or of another type."""
    if text is not None:
        (tmp_path / "config.json").write_text(text)

    with pytest.raises(ConfigError, match=rf"{tmp_path.name}.*{reason}"):
        load_model_config(tmp_path)


def test_reads_both_files_of_a_directory(tmp_path: Path) -> None:
    """config.json and generation_config.json are combined."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 2]}')

    assert load_model_config(tmp_path).eos_ids == (2, 4)


def test_the_pool_layout_follows_the_model() -> None:
    """Layers, KV heads and head dim come from the config."""
    layout = parse_model_config(CONFIG, {}).kv_layout(32, "bfloat16")

    assert (layout.layers, layout.kv_heads, layout.head_dim, layout.block_tokens, layout.dtype) == (
        2,
        2,
        16,
        32,
        "bfloat16",
    )
