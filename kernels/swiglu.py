"""Gate one half of a projection by the SiLU of the other."""

import torch
import torch.nn.functional as F


def swiglu(gate_up_ME: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up, silu(g) = g / (1 + exp(−g)).

    Args:
        gate_up_ME: [M, 2F] float32 contiguous: F gates, then F ups.

    Returns: [M, F] float32 contiguous.
    Source: Shazeer 2020, arXiv:2002.05202.
    """
    gate_MF, up_MF = gate_up_ME.chunk(2, dim=-1)
    return F.silu(gate_MF).mul_(up_MF)
