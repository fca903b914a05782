"""Bytes and operations of scenarios, against counts by hand."""

import pytest

from bench.figures import KINDS
from bench.limits import Machine, ModelCost, Work, limits
from bench.scenarios import SCENARIOS, named
from libs.engine.model_config import ModelConfig
from libs.engine.rope import Rope

SMALL = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=49_152,
    hidden_size=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn_size=1536,
    rms_eps=1e-5,
    rope=Rope(1e5),
    max_position_tokens=8192,
    tied_embeddings=True,
    eos_ids=(2,),
)
MACHINE = Machine(read_bytes_s=27.2e9, matrix_ops_s=400e9)


def test_a_small_model_by_hand() -> None:
    """135 million parameters: 269 MB of weights in bfloat16 and 23,040 bytes of KV a token."""
    cost = ModelCost(SMALL)

    assert cost.weight_bytes == pytest.approx(269e6, rel=0.001)
    assert cost.kv_bytes_per_token == 23_040


def test_operations_of_a_prompt_by_hand() -> None:
    """Two a weight and token, four a query, key and channel; the head sees one token."""
    cost = ModelCost(SMALL)
    layers, head = 106_168_320, 49_152 * 576

    one, two = cost.prompt(1).ops, cost.prompt(2).ops

    assert one == 2 * layers + 2 * head + 4 * 30 * 9 * 64 * 1
    assert two == 4 * layers + 2 * head + 4 * 30 * 9 * 64 * (1 + 2)


def test_a_prompt_in_two_parts_costs_its_operations_once() -> None:
    """The second part attends to the first; only the head and the weights come again."""
    cost = ModelCost(SMALL)
    head = Work(0, 2 * 49_152 * 576)

    whole, parts = cost.prompt(100), cost.prompt(60) + cost.prompt(100, start=60)

    assert parts.ops - head.ops == whole.ops


def test_a_decode_step_reads_the_weights_once_and_shared_kv_once() -> None:
    """The batch adds its own KV only."""
    cost = ModelCost(SMALL)

    step = cost.decode(800, batch=4, shared_tokens=768)

    assert step.read_bytes == cost.weight_bytes + 23_040 * (768 + 4 * 32)
    assert step.ops == 4 * cost.decode(800, batch=1).ops


def test_the_slower_of_reading_and_computing_is_the_limit() -> None:
    """One stream waits for memory, a long prompt for arithmetic."""
    cost = ModelCost(SMALL)

    assert MACHINE.seconds(cost.decode(192, 1)) == cost.decode(192, 1).read_bytes / 27.2e9
    assert MACHINE.seconds(cost.prompt(1024)) == cost.prompt(1024).ops / 400e9


def test_limits_of_known_scenarios_are_where_arithmetic_puts_them() -> None:
    """At 27.2 GB/s and 400 GFLOP/s: near 10 ms a token for one stream, and 1,600 to 1,880 prompt tokens a second."""
    one, prompt = (limits(scenario, SMALL, MACHINE) for scenario in named("S1,S2"))

    assert 9.9 < one["tpot_ms"] < 10.2
    assert 1600 < prompt["prompt_tok_s"] < 1880


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_faster_machine_never_has_a_worse_limit(scenario: object) -> None:
    """Every limit is of a known figure, and moves in that figure's direction."""
    (known,) = (one for one in SCENARIOS if one is scenario)
    slow, fast = limits(known, SMALL, MACHINE), limits(known, SMALL, Machine(54.4e9, 800e9))

    assert slow
    for name, value in slow.items():
        assert fast[name] <= value if KINDS[name].better == "low" else fast[name] >= value
