"""Turns sampling parameters into the arrays of the sampling kernels, and their answers into tokens.

Axes: R rows, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch

from kernels.ban_ids import ban_ids
from kernels.log_softmax import log_softmax
from kernels.sample import sample
from libs.engine.rows import Sampled, SampleSpec


def draw(logits_RV: torch.Tensor, specs: Sequence[SampleSpec]) -> list[Sampled]:
    """One token a row.

    Args:
        logits_RV: [R, V] float32 contiguous, finite.
        specs: of the rows, in order. Log-probabilities are those of the raw logits.
    """
    ids_R = sample(_banned(logits_RV, specs), _filters(specs), _keys(specs), _positions(specs))
    logprobs: list[float | None] = [None] * len(specs)
    if wanted := [row for row, spec in enumerate(specs) if spec.params.logprobs >= 0]:
        at = torch.tensor(wanted)
        for row, logprob in zip(wanted, log_softmax(logits_RV[at], ids_R[at][:, None])[:, 0].tolist(), strict=True):
            logprobs[row] = logprob
    return [Sampled(token, logprob, False) for token, logprob in zip(ids_R.tolist(), logprobs, strict=True)]


def _banned(logits_RV: torch.Tensor, specs: Sequence[SampleSpec]) -> torch.Tensor:
    pairs = [(row, banned) for row, spec in enumerate(specs) for banned in spec.banned_ids]
    if not pairs:
        return logits_RV
    rows_B, ids_B = torch.tensor(pairs).unbind(1)
    return ban_ids(logits_RV, rows_B, ids_B)


def _filters(specs: Sequence[SampleSpec]) -> torch.Tensor:
    settings = [(s.params.temperature, s.params.min_p, s.params.top_k, s.params.top_p) for s in specs]
    return torch.tensor(settings, dtype=torch.float64)


def _keys(specs: Sequence[SampleSpec]) -> torch.Tensor:
    keys = np.array([(s.params.seed + s.choice) % (1 << 64) for s in specs], np.uint64)
    return torch.from_numpy(keys.view(np.int64))


def _positions(specs: Sequence[SampleSpec]) -> torch.Tensor:
    return torch.tensor([s.position for s in specs], dtype=torch.int64)
