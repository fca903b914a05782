"""Rotate queries and keys by angles that grow with their position.

Axes: M tokens, H heads (any number), D head dim, P positions, F = D / 2 frequencies.
"""

import numpy as np
import torch


def rope_tables(head_dim: int, theta: float, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [P, F] of position · theta^(−2f / D), computed in float64 and rounded once to float32."""
    assert head_dim % 2 == 0, head_dim
    frequency_F = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angle_PF = np.arange(positions, dtype=np.float64)[:, None] * frequency_F
    return torch.from_numpy(np.cos(angle_PF).astype(np.float32)), torch.from_numpy(np.sin(angle_PF).astype(np.float32))


def rope(x_MHD: torch.Tensor, cos_MF: torch.Tensor, sin_MF: torch.Tensor) -> None:
    """Rotate x in place: pairs are (f, f + D / 2), each product rounded, then their difference or sum.

    Args:
        x_MHD: [M, H, D] float32, any strides with contiguous D; changed in place.
        cos_MF, sin_MF: [M, D / 2] float32, the rows of the tables at the tokens' positions.

    Source: Su et al. 2021, arXiv:2104.09864, in the half-split order of the Llama checkpoints.
    """
    half = x_MHD.shape[-1] // 2
    cos_M1F, sin_M1F = cos_MF[:, None], sin_MF[:, None]
    low_MHF, high_MHF = x_MHD[..., :half], x_MHD[..., half:]
    rotated_MHF = low_MHF * cos_M1F - high_MHF * sin_M1F
    high_MHF.copy_(high_MHF * cos_M1F + low_MHF * sin_M1F)
    low_MHF.copy_(rotated_MHF)
