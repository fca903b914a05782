"""rms_norm against its formula in float64."""

import numpy as np
import pytest
import torch

from kernels.rms_norm import rms_norm


@pytest.mark.parametrize(("M", "K"), [(1, 1), (1, 576), (3, 17), (40, 33)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_scales_to_unit_mean_square(rng: np.random.Generator, M: int, K: int, scale: float) -> None:
    """Small, usual and large activations follow x / sqrt(mean(x²) + eps) · weight."""
    x, weight = torch.randn(M, K) * scale, torch.randn(K)

    y = rms_norm(x, weight, 1e-5)

    mean = x.double().square().mean(dim=-1, keepdim=True)
    expected = x.double() / (mean + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-6)


def test_leaves_its_input_alone(rng: np.random.Generator) -> None:
    """The residual stream that is normed is not changed."""
    x = torch.randn(2, 8)
    before = x.clone()

    rms_norm(x, torch.ones(8), 1e-5)

    assert torch.equal(x, before)
