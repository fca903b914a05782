"""Natural-log probabilities of chosen ids under raw logits.

Axes: R rows, V vocabulary, J chosen ids a row.
"""

import torch

SEGMENTS = 8


def log_softmax(logits_RV: torch.Tensor, ids_RJ: torch.Tensor) -> torch.Tensor:
    """(logit − max) − log Σ exp(logit − max) of each chosen id.

    The sum runs over eight segments of ⌈V / 8⌉ ids, each about its own maximum, merged from left to right.

    Args:
        logits_RV: [R, V] float32.
        ids_RJ: [R, J] int64, each in [0, V).

    Returns: [R, J] float32.
    """
    width = -(-logits_RV.shape[1] // SEGMENTS)
    parts = [_about_maximum(part_RE) for part_RE in torch.split(logits_RV, width, dim=1)]
    top_R1, sum_R1 = parts[0]
    for part_top_R1, part_sum_R1 in parts[1:]:
        merged_R1 = torch.maximum(top_R1, part_top_R1)
        sum_R1 = torch.addcmul(sum_R1 * (top_R1 - merged_R1).exp(), part_sum_R1, (part_top_R1 - merged_R1).exp())
        top_R1 = merged_R1
    chosen_RJ = logits_RV.gather(1, ids_RJ)
    return (chosen_RJ - top_R1) - sum_R1.log()


def _about_maximum(part_RE: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A segment's maximum and its sum of exponentials about it, each [R, 1]."""
    top_R1 = part_RE.amax(dim=1, keepdim=True)
    return top_R1, (part_RE - top_R1).exp_().sum(dim=1, keepdim=True)
