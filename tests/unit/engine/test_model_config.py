"""Reading a model's config."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.errors import ConfigError
from libs.engine.families import Biases
from libs.engine.model_config import load_model_config, parse_model_config
from libs.engine.rope import Dynamic, Linear, Llama3, Rope, Yarn
from tests.unit.engine.tiny_model import CONFIG


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in CONFIG.items() if name not in names}


def test_numbers_come_from_the_config() -> None:
    """Every number of a Llama config reaches the parsed one."""
    config = parse_model_config(CONFIG, {})

    assert (config.hidden_size, config.layers, config.heads, config.kv_heads, config.head_dim) == (48, 2, 4, 2, 16)
    assert (config.ffn_size, config.vocab_size, config.max_position_tokens) == (80, 131, 1024)
    assert (config.rms_eps, config.rope, config.tied_embeddings) == (1e-5, Rope(10000.0), True)
    assert (config.biases, config.has_qk_norm, config.windows) == (Biases(), False, (0, 0))


def test_absent_fields_take_the_formats_defaults() -> None:
    """Without kv heads and head_dim, every query head has keys of its own and the hidden size is shared out."""
    config = parse_model_config(without("num_key_value_heads", "head_dim", "tie_word_embeddings"), {})

    assert (config.kv_heads, config.head_dim, config.tied_embeddings) == (4, 12, False)


def test_newer_files_keep_theta_among_the_rope_parameters() -> None:
    """rope_parameters of kind default are read like rope_theta."""
    newer = without("rope_theta") | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}

    assert parse_model_config(newer, {}).rope == Rope(5e5)


@pytest.mark.parametrize(
    ("changes", "biases", "windows"),
    [
        ({"architectures": ["LlamaForCausalLM"], "attention_bias": True}, Biases(qkv=True, o=True), (0, 0)),
        ({"architectures": ["LlamaForCausalLM"], "mlp_bias": True}, Biases(mlp=True), (0, 0)),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 9}, Biases(), (9, 9)),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, Biases(), (0, 0)),
        ({"architectures": ["MistralForCausalLM"]}, Biases(), (4096, 4096)),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 9}, Biases(qkv=True), (0, 0)),
        (
            {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 9, "use_sliding_window": True}
            | {"max_window_layers": 1},
            Biases(qkv=True),
            (0, 9),
        ),
        (
            {"architectures": ["Qwen3ForCausalLM"], "sliding_window": 9, "use_sliding_window": True}
            | {"layer_types": ["sliding_attention", "full_attention"]},
            Biases(),
            (9, 0),
        ),
        ({"architectures": ["Qwen3ForCausalLM"], "attention_bias": True}, Biases(qkv=True, o=True), (0, 0)),
    ],
)
def test_families_differ_in_biases_and_windows(
    changes: dict[str, Any], biases: Biases, windows: tuple[int, ...]
) -> None:
    """Each as the format's library has it, defaults included; Qwen3 alone norms queries and keys."""
    parsed = parse_model_config(CONFIG | changes, {})

    assert (parsed.biases, parsed.windows) == (biases, windows)
    assert parsed.has_qk_norm == (changes["architectures"] == ["Qwen3ForCausalLM"])


LLAMA3 = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 256}


@pytest.mark.parametrize(
    ("kind", "named", "scaling", "tokens"),
    [
        ("linear", {"factor": 2}, Linear(2.0), 2048),
        ("dynamic", {"factor": 4}, Dynamic(4.0, 1024, 1024), 1024),
        ("yarn", {"factor": 4}, Yarn(4.0, 1024, 32.0, 1.0, True, 0.1 * math.log(4) + 1), 4096),
        (
            "yarn",
            {"factor": 4, "original_max_position_embeddings": 512, "attention_factor": 1.5, "truncate": False},
            Yarn(4.0, 512, 32.0, 1.0, False, 1.5),
            2048,
        ),
        ("yarn", {"factor": 4, "mscale": 1.0, "mscale_all_dim": 1.0}, Yarn(4.0, 1024, 32.0, 1.0, True, 1.0), 4096),
        ("llama3", LLAMA3, Llama3(8.0, 256, 1.0, 4.0), 1024),
    ],
)
@pytest.mark.parametrize(
    "place", [("rope_scaling", "type"), ("rope_scaling", "rope_type"), ("rope_parameters", "rope_type")]
)
def test_every_kind_of_rope_in_every_spelling(
    kind: str, named: dict[str, Any], scaling: Any, tokens: int, place: tuple[str, str]
) -> None:
    """The kind is named in one of three ways; the context is what the scaled positions serve."""
    parsed = parse_model_config(CONFIG | {place[0]: {place[1]: kind, **named}}, {})

    assert (parsed.rope, parsed.max_position_tokens) == (Rope(10000.0, scaling), tokens)


@pytest.mark.parametrize(("wanted", "served"), [(0, 1024), (500, 1024), (3000, 3000), (9000, 4096)])
def test_dynamic_rope_is_fixed_for_the_longest_sequence(wanted: int, served: int) -> None:
    """Up to the declared length it is plain; beyond it, for what is asked, and the model is then another one."""
    parsed = parse_model_config(CONFIG | {"rope_scaling": {"type": "dynamic", "factor": 4}}, {}, wanted)

    assert (parsed.rope.scaling, parsed.max_position_tokens) == (Dynamic(4.0, 1024, served), served)
    assert bool(parsed.variant) == (served > 1024)


def test_rows_without_a_token_are_no_part_of_the_vocabulary(tmp_path: Path) -> None:
    """The tokenizer's last id, an added one, ends it; ends of sequence beyond it cannot come."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"eos_token_id": [2, 130]}))
    tokens = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 100, "content": "<end>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokens))

    parsed = load_model_config(tmp_path)

    assert (parsed.vocab_size, parsed.vocab_rows, parsed.eos_ids) == (101, 131, (2,))


@pytest.mark.parametrize("text", ["[]", "{", '{"model": {"vocab": {}}}', '{"model": {"vocab": {"a": "b"}}}'])
def test_a_tokenizer_that_names_no_tokens_is_refused(tmp_path: Path, text: str) -> None:
    """With the file's name."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text(text)

    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        load_model_config(tmp_path)


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
        ({"rope_scaling": {"rope_type": "banana", "factor": 4}}, "rope_scaling.rope_type 'banana'"),
        ({"rope_scaling": {"type": ["linear"], "factor": 2}}, "rope_scaling.rope_type"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": "yarn", "factor": 0.5}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": "llama3"} | LLAMA3 | {"high_freq_factor": 1}}, "high_freq_factor"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}, "head_dim": 2}, "head_dim"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor"),
        ({"rope_scaling": 3}, "rope_scaling must be an object"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 0}, "sliding_window"),
        ({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "layer_types": ["x", "y"]}, "layer_types"),
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
