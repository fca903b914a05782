"""Turns sampling parameters into the arrays of the sampling kernels, and their answers into tokens.

Axes: R rows, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch

from kernels.ban_ids import ban_ids
from kernels.log_softmax import log_softmax
from kernels.sample import sample
from libs.contracts.messages import Candidate
from libs.engine.rows import Sampled, SampleSpec


def draw(logits_RV: torch.Tensor, specs: Sequence[SampleSpec]) -> list[Sampled]:
    """One token a row.

    Args:
        logits_RV: [R, V] float32 contiguous, finite.
        specs: of the rows, in order. Log-probabilities are those of the raw logits.
    """
    allowed_RV = _banned(logits_RV, specs)
    ids_R = sample(allowed_RV, _filters(specs), _keys(specs), _positions(specs))
    logprobs: list[float | None] = [None] * len(specs)
    if wanted := [row for row, spec in enumerate(specs) if spec.params.logprobs >= 0]:
        at = torch.tensor(wanted)
        for row, logprob in zip(wanted, log_softmax(logits_RV[at], ids_R[at][:, None])[:, 0].tolist(), strict=True):
            logprobs[row] = logprob
    return [
        Sampled(token, logprob, False, _likeliest(logits_RV[row], allowed_RV[row], specs[row].candidates))
        for row, (token, logprob) in enumerate(zip(ids_R.tolist(), logprobs, strict=True))
    ]


def _likeliest(logits_V: torch.Tensor, allowed_V: torch.Tensor, count: int) -> tuple[Candidate, ...]:
    """The best `count` ids that are not banned, equal ones by id."""
    if not count:
        return ()
    ids_J = torch.sort(allowed_V, descending=True, stable=True).indices[:count]
    ids_J = ids_J[allowed_V[ids_J] > -torch.inf]
    logprobs_J = log_softmax(logits_V[None], ids_J[None])[0]
    return tuple(map(Candidate, ids_J.tolist(), logprobs_J.tolist()))


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
