"""Scale each token to unit root mean square, then by a learned weight."""

import torch


def rms_norm(x_MK: torch.Tensor, weight_K: torch.Tensor, eps: float) -> torch.Tensor:
    """(x · (1 / √(Σx² / K + eps))) · weight, each step rounded to float32.

    Args:
        x_MK: [M, K] float32; any further axes in front.
        weight_K: [K] float32 (holding bf16-rounded values in the bf16 class).
        eps: added to the mean square.

    Returns: as x_MK.
    Accuracy: the sum's order is the library's; a native kernel sums 16 lanes by index, then a fixed tree.
    Source: Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    mean_M1 = x_MK.square().mean(dim=-1, keepdim=True)
    return (x_MK * torch.rsqrt(mean_M1 + eps)).mul_(weight_K)
