"""Rotate queries and keys by angles that grow with their position.

Axes: M tokens, H heads (any number), D head dim, P positions, F = D / 2 frequencies.
"""

import torch

from kernels.angles import angle_tables, plain_frequencies


def rope_tables(head_dim: int, theta: float, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [P, F] of `angle_tables` for plain frequencies, as tensors."""
    cos_PF, sin_PF = angle_tables(plain_frequencies(head_dim, theta), positions)
    return torch.from_numpy(cos_PF), torch.from_numpy(sin_PF)


def rope(x_MHD: torch.Tensor, cos_MF: torch.Tensor, sin_MF: torch.Tensor) -> None:
    """Rotate x in place: pairs are (f, f + D / 2), each product rounded, then their difference or sum.

    Args:
        x_MHD: [M, H, D] float32, any strides with contiguous D; changed in place.
        cos_MF, sin_MF: [M, D / 2] float32, the rows of angle tables at the tokens' positions.

    Source: Su et al. 2021, arXiv:2104.09864, in the half-split order of the Llama checkpoints.
    """
    half = x_MHD.shape[-1] // 2
    cos_M1F, sin_M1F = cos_MF[:, None], sin_MF[:, None]
    low_MHF, high_MHF = x_MHD[..., :half], x_MHD[..., half:]
    rotated_MHF = low_MHF * cos_M1F - high_MHF * sin_M1F
    high_MHF.copy_(high_MHF * cos_M1F + low_MHF * sin_M1F)
    low_MHF.copy_(rotated_MHF)
