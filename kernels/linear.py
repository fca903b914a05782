"""Multiply activations by a packed weight, K cut into fixed segments whose sums are folded in order.

Axes: M tokens, K inputs, N outputs, S segments, E inputs of the widest segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F

SINGLE_TOKEN_TILES = 8  # a product with one token runs on one thread unless N is offered in pieces


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """A weight matrix as this op stores it: made once by `pack_linear`, opaque elsewhere.

    `dtype` is the rounding class: with bfloat16 the weights are rounded (held upcast) and so are the inputs.
    """

    parts_SNE: torch.Tensor  # float32 contiguous; narrower segments end in zeros
    cuts: tuple[int, ...]  # S + 1 ascending bounds of the segments, from 0 to K
    bias_N: torch.Tensor | None
    dtype: torch.dtype


def pack_linear(
    weight_NK: torch.Tensor, dtype: torch.dtype, cuts: Sequence[int] = (), bias_N: torch.Tensor | None = None
) -> LinearWeight:
    """Round, split and lay out a weight for `linear`.

    Args:
        weight_NK: [N, K], any float dtype.
        dtype: torch.float32 or torch.bfloat16, the rounding class.
        cuts: segment bounds 0 < … < K including both ends; empty for one segment.
        bias_N: [N] or None.
    """
    assert dtype in (torch.float32, torch.bfloat16), dtype
    inputs = weight_NK.shape[1]
    bounds = tuple(cuts) or (0, inputs)
    assert bounds[0] == 0 and bounds[-1] == inputs and all(a < b for a, b in pairwise(bounds)), bounds
    parts_SNE = _split(weight_NK.to(dtype).float().contiguous(), bounds).contiguous()
    return LinearWeight(parts_SNE, bounds, None if bias_N is None else bias_N.to(dtype).float(), dtype)


def linear(x_MK: torch.Tensor, weight: LinearWeight, residual_MN: torch.Tensor | None = None) -> torch.Tensor:
    """residual + ((s₀ + s₁) + … + bias), s_j = x · weightᵀ over segment j alone.

    Args:
        x_MK: [M, K] float32; rounded to bfloat16 here when that is the class of the weight.
        weight: packed by `pack_linear`.
        residual_MN: [M, N] float32 or None.

    Returns: [M, N] float32 contiguous.
    Cost: 2 * M * N * K flops; reads N * K weights, so bandwidth-bound for few tokens.
    Accuracy: within a segment the order of K is the library's; a native kernel goes up by pairs (bf16) or by one.
    """
    assert x_MK.ndim == 2 and x_MK.shape[1] == weight.cuts[-1], (x_MK.shape, weight.cuts)
    if weight.dtype == torch.bfloat16:
        x_MK = x_MK.bfloat16().float()
    sums_SNM = _products(x_MK, weight)
    y_NM = sums_SNM[0]
    for part_NM in sums_SNM[1:]:
        y_NM = y_NM + part_NM
    y_MN = y_NM.t().contiguous()
    if weight.bias_N is not None:
        y_MN = y_MN + weight.bias_N
    return y_MN if residual_MN is None else residual_MN + y_MN


def _products(x_MK: torch.Tensor, weight: LinearWeight) -> torch.Tensor:
    """[S, N, M]: weight · xᵀ per segment. The library is faster with the weight on the left when tokens are few."""
    S, N, E = weight.parts_SNE.shape
    M = x_MK.shape[0]
    if S > 1:
        return torch.bmm(weight.parts_SNE, _split(x_MK, weight.cuts).transpose(1, 2))
    if M == 1 and N % SINGLE_TOKEN_TILES == 0:
        tiles = weight.parts_SNE.view(SINGLE_TOKEN_TILES, N // SINGLE_TOKEN_TILES, E)
        return torch.bmm(tiles, x_MK.t().expand(SINGLE_TOKEN_TILES, E, 1)).view(1, N, 1)
    return torch.mm(weight.parts_SNE[0], x_MK.t())[None]


def _split(matrix_MK: torch.Tensor, cuts: tuple[int, ...]) -> torch.Tensor:
    """[S, M, E]: the columns of each segment; segments narrower than the widest end in zeros."""
    widths = [b - a for a, b in pairwise(cuts)]
    if len(set(widths)) == 1:
        return matrix_MK.view(-1, len(widths), widths[0]).transpose(0, 1)
    parts = torch.split(matrix_MK, widths, dim=1)
    return torch.stack([F.pad(part, (0, max(widths) - part.shape[1])) for part in parts])
