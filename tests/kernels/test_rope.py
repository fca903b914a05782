"""rope against rotation by complex numbers in float64."""

import numpy as np
import pytest
import torch

from kernels.rope import rope, rope_tables


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (3, 6), (12, 64)])
def test_rotates_half_split_pairs(rng: np.random.Generator, heads: int, head_dim: int) -> None:
    """Pair (f, f + D/2) turns by position · theta^(−2f/D), at positions far from zero too."""
    positions = torch.tensor([0, 1, 77, 4095])
    x = torch.randn(4, heads, head_dim)
    cos, sin = rope_tables(head_dim, 10000.0, 4096)

    rotated = x.clone()
    rope(rotated, cos[positions], sin[positions])

    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    turn = torch.polar(torch.ones(4, head_dim // 2).double(), positions.double()[:, None] * frequencies)
    low, high = x.double().chunk(2, dim=-1)
    expected = torch.complex(low, high) * turn[:, None]
    torch.testing.assert_close(rotated.double(), torch.cat([expected.real, expected.imag], -1), rtol=1e-5, atol=1e-5)


def test_changes_only_the_heads_it_is_given(rng: np.random.Generator) -> None:
    """Rotating a view of queries and keys leaves the values beside them."""
    x = torch.randn(2, 5, 8)
    values = x[:, 3:].clone()
    cos, sin = rope_tables(8, 10000.0, 4)

    rope(x[:, :3], cos[2:4], sin[2:4])

    assert torch.equal(x[:, 3:], values)
