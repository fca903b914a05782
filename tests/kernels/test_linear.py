"""linear against float64 matrix products."""

import numpy as np
import pytest
import torch

from kernels.linear import linear, pack_linear
from kernels.segments import even_cuts

DTYPES = (torch.float32, torch.bfloat16)
SHAPES = ((1, 1, 1), (1, 64, 48), (1, 7, 33), (2, 5, 31), (9, 96, 200), (33, 130, 65))


def rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype).double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("M", "N", "K"), SHAPES)
def test_equals_the_product_of_rounded_operands(
    rng: np.random.Generator, M: int, N: int, K: int, dtype: torch.dtype
) -> None:
    """Inputs and weights are rounded to the class's type, products and sums are not; bias and residual are added."""
    x, weight, bias, residual = torch.randn(M, K), torch.randn(N, K), torch.randn(N), torch.randn(M, N)

    y = linear(x, pack_linear(weight, dtype, bias_N=bias), residual)

    expected = rounded(x, dtype) @ rounded(weight, dtype).T + rounded(bias, dtype) + residual.double()
    assert y.dtype == torch.float32 and y.is_contiguous()
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("cuts", [(0, 64, 128, 192), (0, 32, 64, 192), (0, 96, 192)])
@pytest.mark.parametrize("M", [1, 2, 17])
def test_segments_add_up_to_the_whole(rng: np.random.Generator, M: int, cuts: tuple[int, ...]) -> None:
    """Any cutting of K, even or not, gives the same product."""
    x, weight = torch.randn(M, 192), torch.randn(40, 192)

    y = linear(x, pack_linear(weight, torch.float32, cuts))

    torch.testing.assert_close(y.double(), x.double() @ weight.double().T, rtol=1e-5, atol=1e-4)


def test_segments_are_folded_from_left_to_right() -> None:
    """Each segment has an accumulator of its own, and the first two sums are added first."""
    weight = pack_linear(torch.ones(1, 6), torch.float32, (0, 2, 4, 6))

    y = linear(torch.tensor([[1e8, 1.0, -1e8, 1.0, 0.0, 1.0]]), weight)

    assert y.item() == 1.0  # (1e8 − 1e8) + 1: the ones vanish beside 1e8; one accumulator gives 2, a right fold 0


def test_a_token_alone_equals_itself_in_a_batch(rng: np.random.Generator) -> None:
    """Neighbours change a token's result by rounding at most."""
    x, weight = torch.randn(13, 192), pack_linear(torch.randn(56, 192), torch.float32, (0, 64, 128, 192))

    alone = torch.cat([linear(x[i : i + 1], weight) for i in range(13)])

    torch.testing.assert_close(alone, linear(x, weight), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "cuts"),
    [
        (1536, (0, 192, 384, 576, 768, 960, 1152, 1344, 1536)),
        (1000, (0, 128, 256, 384, 512, 640, 768, 896, 1000)),
        (64, (0, 32, 64)),
        (8, (0, 8)),
    ],
)
def test_even_cuts_are_rounded_up_to_32(inputs: int, cuts: tuple[int, ...]) -> None:
    """Eight segments cut at multiples of 32; empty ones vanish."""
    assert even_cuts(inputs) == cuts
