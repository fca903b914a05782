"""The figures that textbooks and papers give, exactly."""

import pytest

from bench.limits import ModelCost
from cli.roofline.device import DEVICES
from cli.roofline.formulas import (
    DecodeCost,
    Precision,
    cost_per_million,
    flash_attention_intensity,
    kv_token_bytes,
    shared_prompt_bytes,
    standard_attention_intensity,
)
from cli.roofline.shape import SHAPES
from libs.engine.model_config import ModelConfig
from libs.engine.rope import Rope

HALF = Precision(2.0, 2.0)
LLAMA_70B = SHAPES["llama-3-70b"]


def test_a_token_of_llama_3_70b_takes_0_3125_mib() -> None:
    """80 layers, 8 KV heads of 128, 16 bits."""
    assert kv_token_bytes(LLAMA_70B, 2.0) == 327_680 == 0.3125 * 2**20


def test_a_prompt_that_128_users_share_is_kept_once() -> None:
    """1,000 tokens: 42 GB without sharing, 0.33 GB with it."""
    alone, shared = shared_prompt_bytes(327_680, 1000, 128)

    assert round(alone / 1e9) == 42
    assert round(shared / 1e9, 2) == 0.33


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-2-7b", 6_738_415_616),
        ("mistral-7b", 7_248_023_552),
        ("smollm2", 134_515_008),
    ],
)
def test_models_have_the_published_number_of_parameters(model: str, parameters: int) -> None:
    """To the last one, so that no matrix is forgotten or counted twice."""
    assert SHAPES[model].parameters == parameters


@pytest.mark.parametrize(("device", "ridge"), [("h100", 295), ("a100", 156)])
def test_the_ridge_is_rate_over_bandwidth(device: str, ridge: int) -> None:
    """H100: 989 TFLOP/s and 3.35 TB/s; A100: 312 and 2.0."""
    assert round(DEVICES[device].ridge) == ridge


def test_attention_that_keeps_its_scores_on_the_chip_is_bound_by_arithmetic() -> None:
    """62 and 2,048 FLOP per byte at 4,096 tokens and a head of 128, on either side of every ridge."""
    assert round(standard_attention_intensity(4096, 128, 2.0)) == 62
    assert flash_attention_intensity(4096, 128, 2.0) == 2048


@pytest.mark.parametrize(("device", "batch"), [("h100", 295), ("a100", 156)])
def test_decode_turns_compute_bound_at_the_ridge_while_contexts_are_short(device: str, batch: int) -> None:
    """In 16 bits two operations meet two bytes, so that the batch is the intensity."""
    found = DecodeCost.of(LLAMA_70B, HALF).transition_batch(DEVICES[device].ridge, 0)

    assert found is not None and round(found) == batch


def test_the_transition_is_where_the_intensity_is_the_ridge() -> None:
    """With a context that is long enough to count and short enough to leave one."""
    cost, ridge = DecodeCost.of(LLAMA_70B, HALF), DEVICES["h100"].ridge

    batch = cost.transition_batch(ridge, 1000)

    assert batch is not None and batch > 295
    assert cost.intensity(batch, 1000) == pytest.approx(ridge)


def test_where_kv_keeps_decode_under_the_ridge_the_transition_is_never() -> None:
    """Each further sequence reads its own KV: more of them come no nearer to the ridge."""
    cost, ridge = DecodeCost.of(LLAMA_70B, HALF), DEVICES["h100"].ridge

    assert cost.transition_batch(ridge, 4096) is None
    assert cost.intensity(1e12, 4096) < ridge


def test_attention_of_a_decode_step_has_the_intensity_of_its_heads_per_kv_head() -> None:
    """64 query heads over 8 KV heads: 8 operations for each byte, at any batch."""
    assert DecodeCost.of(LLAMA_70B, HALF).attention_intensity == 8


def test_a_million_tokens_cost_what_the_time_for_them_costs() -> None:
    """1,000 tokens a second are a million in 1,000 seconds."""
    assert cost_per_million(3.6, 1000) == pytest.approx(1.0)


def test_the_bench_bounds_a_step_by_the_same_bytes() -> None:
    """The limits that runs are compared with, and the figures printed here."""
    shape = LLAMA_70B
    model = ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        ffn_size=shape.ffn,
        rms_eps=1e-5,
        rope=Rope(5e5),
        max_position_tokens=shape.context_tokens,
        tied_embeddings=False,
        eos_ids=(),
    )
    ours, theirs = DecodeCost.of(shape, HALF), ModelCost(model).decode(700, 9)

    assert ours.weight_bytes + 9 * 700 * ours.token_bytes == theirs.read_bytes
    assert 9 * ours.sequence_ops(700) == theirs.ops
