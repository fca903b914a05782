"""The native matrix product: close to float64, and the same bits whatever else runs."""

import numpy as np
import pytest
import torch

from kernels.native.levels import supported_levels
from kernels.segments import even_cuts
from tests.kernels.native_linear import Native, bits

DTYPES = (torch.float32, torch.bfloat16)
CLASSES = ("float32", "bfloat16", "int8", "int8w")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-3}
SHAPES = ((1, 1, 1), (1, 64, 48), (3, 7, 33), (2, 5, 31), (9, 96, 200), (70, 130, 65), (5, 49, 2))


def error(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("M", "N", "K"), SHAPES)
def test_equals_the_product_of_rounded_operands(
    native: Native, rng: np.random.Generator, M: int, N: int, K: int, dtype: torch.dtype
) -> None:
    """Inputs and weights are rounded to the class's type; bias and residual are added."""
    x, weight, bias, residual = torch.randn(M, K), torch.randn(N, K), torch.randn(N), torch.randn(M, N)

    y = native.linear(x, native.pack(weight, dtype, bias_N=bias), residual)

    expected = x.to(dtype).double() @ weight.to(dtype).double().T + bias.double() + residual.double()
    assert error(y, expected) <= 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_model_s_shapes_are_close_to_float64(native: Native, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Rounding included, a product of the down projection's shape is within the contract's bound."""
    x, weight = torch.randn(11, 1536), torch.randn(576, 1536) / 40

    y = native.linear(x, native.pack(weight, dtype, even_cuts(1536)))

    assert error(y, x.double() @ weight.double().T) <= TOLERANCE[dtype]


@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", CLASSES)
def test_weights_of_narrow_types_are_packed_as_they_are(
    native: Native, rng: np.random.Generator, source: torch.dtype, dtype: str
) -> None:
    """A float16 or bfloat16 source gives the bits of its float32 values."""
    weight, x = (torch.randn(50, 34) * 0.01).to(source), torch.randn(4, 34)

    assert bits(native.linear(x, native.pack(weight, dtype))) == bits(
        native.linear(x, native.pack(weight.float(), dtype))
    )


@pytest.mark.parametrize("dtype", CLASSES)
@pytest.mark.parametrize("batch", [2, 7, 32, 300])
def test_a_token_alone_equals_itself_in_a_batch(
    native: Native, level: str, rng: np.random.Generator, batch: int, dtype: str
) -> None:
    """Bit for bit, whatever the number of neighbours, with one thread and two."""
    if level == "portable" and batch > 32:
        pytest.skip("minutes without vectors")
    x, weight, bias = torch.randn(batch, 450), torch.randn(103, 450), torch.randn(103)
    packed = native.pack(weight, dtype, (0, 32, 96, 450), bias)
    residual = torch.randn(batch, 103)

    together = native.linear(x, packed, residual)

    for row in {0, 1, batch // 2, batch - 1}:
        assert bits(native.linear(x[row : row + 1], packed, residual[row : row + 1])) == bits(together[row : row + 1])
    with Native(level, threads=1) as single:
        assert bits(single.linear(x, packed, residual)) == bits(together)


@pytest.mark.parametrize("dtype", CLASSES)
def test_a_column_is_the_same_wherever_it_lies(native: Native, rng: np.random.Generator, dtype: str) -> None:
    """A weight cut off after any number of outputs gives the bits of the whole one's first columns."""
    x, weight = torch.randn(5, 290), torch.randn(150, 290)
    whole = native.linear(x, native.pack(weight, dtype))

    for columns in (1, 15, 16, 17, 47, 48, 49, 97, 149):
        assert bits(native.linear(x, native.pack(weight[:columns], dtype))) == bits(whole[:, :columns])


@pytest.mark.parametrize("dtype", CLASSES)
def test_all_levels_give_the_same_bits(level: str, rng: np.random.Generator, dtype: str) -> None:
    """The order of a sum is the contract's, not the instruction's: the best level and each other agree."""
    x, weight = torch.randn(19, 1536), torch.randn(70, 1536)

    with Native(supported_levels()[0], threads=1) as best, Native(level, threads=1) as other:
        for tokens in (1, 19):
            ours, theirs = (
                native.linear(x[:tokens], native.pack(weight, dtype, even_cuts(1536))) for native in (best, other)
            )
            assert bits(ours) == bits(theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_segments_are_folded_from_left_to_right(native: Native, dtype: torch.dtype) -> None:
    """Each segment has an accumulator of its own, and the first two sums are added first."""
    packed = native.pack(torch.ones(1, 6), dtype, (0, 2, 4, 6))

    y = native.linear(torch.tensor([[2.0**27, 1.0, -(2.0**27), 1.0, 0.0, 1.0]]), packed)

    assert y.item() == 1.0  # (2²⁷ − 2²⁷) + 1; one accumulator gives 2, a right fold 0


def test_pairs_go_odd_member_first(native: Native) -> None:
    """In bfloat16 the second of a pair is added first, each product rounded alone; float32 goes up by one."""
    x, weight = torch.tensor([[1.0, 2.0**27, -(2.0**27), 0.0]]), torch.ones(1, 4)

    assert native.linear(x, native.pack(weight, torch.bfloat16)).item() == 0.0  # 2²⁷ + 1 rounds to 2²⁷
    assert native.linear(x, native.pack(weight, torch.float32)).item() == 0.0
    last = torch.tensor([[2.0**27, -(2.0**27), 1.0, 0.0]])
    first = torch.tensor([[-(2.0**27), 2.0**27, 0.0, 1.0]])
    assert native.linear(last, native.pack(weight, torch.bfloat16)).item() == 1.0
    assert native.linear(first, native.pack(weight, torch.bfloat16)).item() == 1.0
    swapped = torch.tensor([[1.0, 0.0, 2.0**27, 0.0, 0.0, -(2.0**27), 1.0, 0.0]])
    assert native.linear(swapped, native.pack(torch.ones(1, 8), torch.bfloat16)).item() == 1.0


def test_cutting_a_pair_is_refused(native: Native) -> None:
    """A segment bound inside a bfloat16 pair has no meaning."""
    with pytest.raises(AssertionError, match="cut a pair"):
        native.pack(torch.ones(1, 6), torch.bfloat16, (0, 3, 6))
