"""Take ids out of the running before a draw."""

import torch


def ban_ids(logits_RV: torch.Tensor, rows_B: torch.Tensor, ids_B: torch.Tensor) -> torch.Tensor:
    """A copy of the logits with −∞ at each (row, id) pair.

    Args:
        logits_RV: [R, V] float32.
        rows_B, ids_B: [B] int64 in [0, R) and [0, V); repeats are allowed.

    Returns: [R, V] float32 contiguous.
    """
    banned_RV = logits_RV.clone()
    banned_RV[rows_B, ids_B] = -torch.inf
    return banned_RV
