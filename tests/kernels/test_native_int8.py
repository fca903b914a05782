"""Products by quantised weights: exact where the contract is exact. What changes no bit is in test_native_linear.py."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch

from kernels.segments import even_cuts
from tests.kernels.int8_reference import dequantised, int8_product
from tests.kernels.native_linear import Native, bits

CLASSES = ("int8", "int8w")
SHAPES = ((1, 1, 1), (1, 64, 48), (3, 7, 33), (2, 5, 31), (9, 96, 200), (70, 130, 65), (5, 49, 2), (4, 50, 579))
CUTS = ((0, 32, 96, 500), (0, 4, 300, 500), (0, 500), (0, 192, 384, 500))


def expected_int8(x: torch.Tensor, weight: torch.Tensor, cuts: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(int8_product(x.numpy(), weight.float().numpy(), cuts))


def int8w_error(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, cuts: Sequence[int]) -> float:
    expected = x.bfloat16().double() @ torch.from_numpy(dequantised(weight.numpy(), cuts)).T
    return float((y.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(("M", "N", "K"), SHAPES)
def test_int8_is_the_contract_s_product_bit_for_bit(
    native: Native, rng: np.random.Generator, M: int, N: int, K: int
) -> None:
    """Integers, exact sums, scales, bias and residual: nothing differs from plain numpy."""
    x, weight, bias, residual = torch.randn(M, K), torch.randn(N, K), torch.randn(N), torch.randn(M, N)

    y = native.linear(x, native.pack(weight, "int8", bias_N=bias), residual)

    assert bits(y) == bits(residual + (expected_int8(x, weight, (0, K)) + bias))


@pytest.mark.parametrize("cuts", CUTS)
def test_int8_folds_groups_then_segments(native: Native, rng: np.random.Generator, cuts: tuple[int, ...]) -> None:
    """Each segment of a token has a scale of its own, each group of a weight too, and they are added from the left."""
    x = torch.randn(11, 500) * torch.logspace(-3, 3, 500)
    weight = torch.randn(70, 500) * torch.logspace(2, -2, 500)

    assert bits(native.linear(x, native.pack(weight, "int8", cuts))) == bits(expected_int8(x, weight, cuts))


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("M", [1, 3, 40])
def test_int8w_multiplies_by_what_the_integers_stand_for(
    native: Native, rng: np.random.Generator, cuts: tuple[int, ...], M: int
) -> None:
    """Inputs are rounded to bfloat16, weights quantised, and only float32 sums are inexact."""
    x, weight = torch.randn(M, 500), torch.randn(70, 500) * torch.logspace(2, -2, 500)

    assert int8w_error(native.linear(x, native.pack(weight, "int8w", cuts)), x, weight, cuts) <= 1e-5


@pytest.mark.parametrize(("M", "N", "K"), SHAPES)
def test_int8w_takes_odd_shapes(native: Native, rng: np.random.Generator, M: int, N: int, K: int) -> None:
    """Widths that no vector, panel or group divides; bias and residual are added."""
    x, weight, bias, residual = torch.randn(M, K), torch.randn(N, K), torch.randn(N), torch.randn(M, N)

    y = native.linear(x, native.pack(weight, "int8w", bias_N=bias), residual)

    assert int8w_error(y - residual - bias, x, weight, (0, K)) <= 1e-4


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("K", [4, 192, 1536])
def test_the_greatest_sums_do_not_saturate(native: Native, sign: int, K: int) -> None:
    """Every input and weight at ±127: the sums that an instruction which saturates would clip."""
    x, weight = torch.full((9, K), 127.0), torch.full((50, K), 127.0 * sign)

    assert bits(native.linear(x, native.pack(weight, "int8"))) == bits(torch.full((9, 50), 127.0 * 127 * K * sign))
    assert bits(native.linear(-x, native.pack(weight, "int8"))) == bits(torch.full((9, 50), -127.0 * 127 * K * sign))


def test_halves_round_to_even(native: Native) -> None:
    """x / s = k + ½ goes to the even neighbour, on both sides of zero."""
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5]])

    y = native.linear(x, native.pack(torch.eye(8), "int8"))

    assert y.round().tolist() == [[127.0, 0.0, 2.0, 2.0, 0.0, -2.0, -2.0, 126.0]]


@pytest.mark.parametrize("dtype", CLASSES)
def test_zeros_give_zeros(native: Native, rng: np.random.Generator, dtype: str) -> None:
    """A token, a segment of one or a weight's row without a scale is zero, and so are its products."""
    x, weight = torch.randn(5, 320), torch.randn(20, 320)
    x[1], x[2, :128], weight[3] = 0, 0, 0

    y = native.linear(x, native.pack(weight, dtype, (0, 128, 320)))

    assert not y[1].any() and not y[:, 3].any()
    if dtype == "int8":
        assert bits(y) == bits(expected_int8(x, weight, (0, 128, 320)))
    assert torch.isfinite(y).all()


@pytest.mark.parametrize("dtype", CLASSES)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_so(native: Native, rng: np.random.Generator, dtype: str, bad: float) -> None:
    """No integer hides it: the token's products are not finite, those of its neighbours are untouched."""
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    clean = native.linear(x, native.pack(weight, dtype))
    poisoned = x.clone()
    poisoned[1, 17] = bad

    y = native.linear(poisoned, native.pack(weight, dtype))

    assert not torch.isfinite(y[1]).any()
    assert bits(y[[0, 2]]) == bits(clean[[0, 2]])


@pytest.mark.parametrize("dtype", CLASSES)
def test_cutting_four_inputs_is_refused(native: Native, dtype: str) -> None:
    """A segment bound inside four inputs has no place in a packed weight."""
    with pytest.raises(AssertionError, match="cut a pair or four"):
        native.pack(torch.ones(1, 12), dtype, (0, 6, 12))


def test_segments_of_the_model_are_groups() -> None:
    """The down and output projections of the default model need one scale a segment and column: no smaller group."""
    assert max(b - a for a, b in pairwise(even_cuts(1536))) <= 192
