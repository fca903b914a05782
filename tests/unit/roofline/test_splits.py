"""Which split fits, and what it then gives."""

from dataclasses import replace

import pytest

from cli.roofline.device import DEVICES, device_of
from cli.roofline.formulas import Precision
from cli.roofline.shape import SHAPES
from cli.roofline.splits import Load, Split, splits
from libs.contracts.errors import ConfigError

HALF = Precision(2.0, 2.0)


def found(model: str, device: str, context_tokens: int = 4096, **load: float) -> list[Split]:
    return splits(SHAPES[model], HALF, DEVICES[device], Load(context_tokens, 1000, 128, **load))


def smallest(model: str, device: str) -> tuple[int, int]:
    split = next(split for split in found(model, device) if split.fits)
    return split.tensor, split.pipeline


@pytest.mark.parametrize(
    ("model", "device", "tensor", "pipeline"),
    [
        ("llama-3-8b", "h100", 1, 1),
        ("llama-3-70b", "h100", 2, 1),
        ("llama-3-70b", "a100", 2, 1),
        ("llama-3.1-405b", "h100", 8, 2),
        ("llama-3.1-405b", "h200", 8, 1),
    ],
)
def test_the_smallest_split_that_fits(model: str, device: str, tensor: int, pipeline: int) -> None:
    """Within a node by heads, and over nodes by layers only when a node is too small."""
    assert smallest(model, device) == (tensor, pipeline)


def test_sequences_fill_what_the_weights_leave() -> None:
    """Nine tenths of the memory, less the weights, in sequences of whole contexts."""
    one = found("llama-3-8b", "h100")[0]

    assert one.kv_budget_bytes == pytest.approx(72e9 - 2 * 8_030_261_248)
    assert one.sequences == int(one.kv_budget_bytes // (131_072 * 4096))


def test_kv_heads_are_repeated_where_there_are_fewer_than_devices() -> None:
    """Splitting four heads over eight devices saves weights and no KV."""
    shape = replace(SHAPES["llama-3-8b"], kv_heads=4)
    four, eight = splits(shape, HALF, DEVICES["h100"], Load(4096, 1000, 128))[2:4]

    assert (four.tensor, eight.tensor) == (4, 8)
    assert four.sequences / four.kv_budget_bytes == pytest.approx(eight.sequences / eight.kv_budget_bytes, rel=1e-3)


def test_heads_are_never_cut() -> None:
    """Nine heads go over one or three devices."""
    assert {split.tensor for split in found("smollm2", "l4")} == {1, 3}


def test_a_pipeline_computes_shares_of_the_batch_in_turn() -> None:
    """Twice the devices give no more than twice the tokens of as many sequences."""
    one, two = found("llama-3.1-405b", "h200")[3:5]

    assert (one.pipeline, two.pipeline) == (1, 2)
    assert two.tokens_s / two.sequences <= 2 * one.tokens_s / one.sequences


def test_cost_needs_a_price_and_room() -> None:
    """A split that holds nothing gives no tokens at any price."""
    assert all(split.million_cost is None for split in found("llama-3-70b", "h100"))
    priced = found("llama-3-70b", "h100", price_per_hour=3.0)
    assert [split.million_cost is None for split in priced[:2]] == [True, False]


def test_figures_may_be_given_in_place_of_a_name_or_beside_it() -> None:
    """A figure that is given wins; without a name all three are needed."""
    assert device_of("h100", flops_s=0, bytes_s=1e12, memory_bytes=0) == replace(DEVICES["h100"], bytes_s=1e12)
    assert device_of("", flops_s=4.0, bytes_s=2.0, memory_bytes=8.0).ridge == 2.0
    with pytest.raises(ConfigError, match="--flops, --bandwidth and --memory"):
        device_of("", flops_s=4.0, bytes_s=2.0, memory_bytes=0)
    with pytest.raises(ConfigError, match="a100, h100"):
        device_of("h1000", flops_s=0, bytes_s=0, memory_bytes=0)
