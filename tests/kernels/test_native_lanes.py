"""The sixteen-lane building blocks of the native kernels: own exp and log, rounding, dot products of pairs."""

import math

import numpy as np
import pytest
import torch

from tests.kernels.native_ops import Ops

LANES = 16


def ulps(out: torch.Tensor, expected: torch.Tensor) -> float:
    step = np.abs(np.spacing(expected.float().numpy())).astype(np.float64)
    return float((np.abs(out.double().numpy() - expected.numpy()) / step).max())


@pytest.mark.parametrize("limits", [(-87.3, 88.3), (-1.0, 0.0), (-1e-3, 1e-3)])
def test_exp_is_within_two_ulps(ops: Ops, rng: np.random.Generator, limits: tuple[float, float]) -> None:
    """Our exp, compared with float64, over all of its range and where scores lie."""
    x = torch.empty(100_003).uniform_(*limits)

    assert ulps(ops.lanes("exp", x), x.double().exp()) <= 2


def test_exp_has_exact_ends(ops: Ops) -> None:
    """exp(0) is 1 and exp(−∞) is 0; NaN stays NaN, and what is out of range becomes 0 or infinite."""
    x = torch.tensor([0.0, -0.0, -math.inf, -88.0, -1e30, 89.0, math.inf, math.nan])

    assert ops.lanes("exp", x).tolist()[:-1] == [1.0, 1.0, 0.0, 0.0, 0.0, math.inf, math.inf]
    assert ops.lanes("exp", x)[-1].isnan()


@pytest.mark.parametrize("limits", [(2.0**-24, 1.0), (0.5, 2.0), (1.0, 1e6)])
def test_log_is_within_two_ulps(ops: Ops, rng: np.random.Generator, limits: tuple[float, float]) -> None:
    """Our log, compared with float64, over the noise's uniforms and the sums of exponentials."""
    x = torch.empty(100_003).uniform_(*limits)

    assert ulps(ops.lanes("log", x), x.double().log()) <= 2


def test_rounding_to_bfloat16_is_the_reference_s(ops: Ops, rng: np.random.Generator) -> None:
    """Nearest, ties to even; denormals become zeros of their sign; NaN stays NaN."""
    bits = torch.from_numpy(rng.integers(0, 1 << 32, 100_003, dtype=np.uint32).view(np.int32).copy())
    ties = torch.from_numpy((rng.integers(0, 1 << 16, 1000, dtype=np.uint32) << 16 | 0x8000).view(np.int32).copy())
    x = torch.cat((bits, ties)).view(torch.float32)
    expected = torch.where(x.abs() < 2.0**-126, torch.copysign(torch.zeros(()), x), x).bfloat16()

    rounded = ops.lanes("round", x)

    assert torch.equal(rounded.isnan(), x.isnan())
    assert torch.equal(rounded[~x.isnan()].view(torch.int16), expected[~x.isnan()].view(torch.int16))


def test_a_pair_is_added_odd_member_first_with_one_rounding_each(ops: Ops, rng: np.random.Generator) -> None:
    """Every level gives the bits of two fused multiply-adds, computed here in exact arithmetic."""
    n = 20 * LANES
    sums = torch.randn(n) * torch.exp2(torch.randint(-12, 12, (n,)))
    a, b = torch.randn(n, 2).bfloat16(), torch.randn(n, 2).bfloat16()

    out = ops.dot_pairs(sums, a, b)

    a64, b64 = a.double(), b.double()  # products of bfloat16 are exact in float64
    odd = fused(a64[:, 1] * b64[:, 1], sums)
    assert torch.equal(out, fused(a64[:, 0] * b64[:, 0], odd))


def fused(exact_product: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """float32(product + x), rounded once: the rest of the float64 sum decides where it would round twice."""
    total = exact_product + x.double()
    part = total - exact_product
    rest = (exact_product - (total - part)) + (x.double() - part)
    bits = total.view(torch.int64)
    is_inexact = (rest != 0) & (bits & 1 == 0)  # rounded to odd, a sum rounds to float32 as the exact one does
    step = torch.where((rest > 0) == (total > 0), 1, -1)
    return torch.where(is_inexact, bits + step, bits).view(torch.float64).float()
