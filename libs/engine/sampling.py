"""Turns sampling parameters into the arrays of the sampling kernels, and their answers into tokens.

Axes: R rows, V vocabulary.
"""

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from kernels.adjust import Penalties, adjust
from kernels.log_softmax import log_softmax
from kernels.sample import sample
from libs.contracts.messages import Candidate
from libs.engine.adjustment import Adjustment
from libs.engine.rows import Sampled, SampleSpec

NONE_ALLOWED = -1
PLAIN = Adjustment()


def draw(logits_RV: torch.Tensor, specs: Sequence[SampleSpec]) -> list[Sampled]:
    """One token a row; NONE_ALLOWED where every id is banned.

    Args:
        logits_RV: [R, V] float32 contiguous, finite.
        specs: of the rows, in order. Log-probabilities are those of the raw logits.
    """
    adjusted_RV = _adjusted(logits_RV, specs)
    ids_R = torch.full((len(specs),), NONE_ALLOWED)
    if drawing := torch.nonzero(adjusted_RV.amax(dim=1) > -torch.inf)[:, 0].tolist():
        some = [specs[row] for row in drawing]
        ids_R[drawing] = sample(adjusted_RV[drawing], _filters(some), _keys(some), _positions(some))
    return [
        _sampled(token, spec, logits_V, adjusted_V)
        for token, spec, logits_V, adjusted_V in zip(ids_R.tolist(), specs, logits_RV, adjusted_RV, strict=True)
    ]


def _sampled(token: int, spec: SampleSpec, logits_V: torch.Tensor, adjusted_V: torch.Tensor) -> Sampled:
    if spec.candidates:
        told = tuple(map(Candidate, *_likeliest(logits_V, adjusted_V, spec.candidates)))
        return Sampled(token, None, False, told)
    if spec.params.logprobs < 0 or token == NONE_ALLOWED:
        return Sampled(token, None, False)
    logprob = log_softmax(logits_V[None], torch.tensor([[token]])).item()
    ids, logprobs = _likeliest(logits_V, logits_V, spec.params.logprobs)
    return Sampled(token, logprob, False, top_ids=tuple(ids), top_logprobs=tuple(logprobs))


def _likeliest(logits_V: torch.Tensor, ranked_V: torch.Tensor, count: int) -> tuple[list[int], list[float]]:
    """The best `count` ids that are not banned, equal ones by id, and their log-probabilities by the raw logits."""
    if not count:
        return [], []
    ids_J = torch.sort(ranked_V, descending=True, stable=True).indices[:count]
    ids_J = ids_J[ranked_V[ids_J] > -torch.inf]
    return ids_J.tolist(), log_softmax(logits_V[None], ids_J[None])[0].tolist()


def _adjusted(logits_RV: torch.Tensor, specs: Sequence[SampleSpec]) -> torch.Tensor:
    """The logits that tokens are drawn from: a copy where a row is adjusted, else the same."""
    rows = [row for row, spec in enumerate(specs) if spec.adjustment is not None or spec.banned_ids]
    if not rows:
        return logits_RV
    adjusted_RV = logits_RV.clone()
    for row in rows:
        adjusted_RV[row] = torch.from_numpy(_adjust(logits_RV[row].numpy(), specs[row]))
    return adjusted_RV


def _adjust(logits_V: npt.NDArray[np.float32], spec: SampleSpec) -> npt.NDArray[np.float32]:
    how = spec.adjustment or PLAIN
    while how.mask_ready is not None and not how.mask_ready[0]:
        time.sleep(0)  # lets the thread that fills it go on
    penalties = bias = None
    if how.seen is not None:
        seen_ids_S, counts_S = (np.array(numbers, np.int32) for numbers in (how.seen.ids, how.seen.counts))
        penalties = Penalties(seen_ids_S, counts_S, how.repetition, how.frequency, how.presence)
    if how.bias_ids_B is not None and how.bias_B is not None:
        bias = how.bias_ids_B, how.bias_B
    masks_W = [mask_W for mask_W in (how.allowed_W, how.mask_W) if mask_W is not None]
    return adjust(logits_V, penalties, bias, masks_W, spec.banned_ids)


def _filters(specs: Sequence[SampleSpec]) -> torch.Tensor:
    settings = [(s.params.temperature, s.params.min_p, s.params.top_k, s.params.top_p) for s in specs]
    return torch.tensor(settings, dtype=torch.float64)


def _keys(specs: Sequence[SampleSpec]) -> torch.Tensor:
    keys = np.array([(s.params.seed + s.choice) % (1 << 64) for s in specs], np.uint64)
    return torch.from_numpy(keys.view(np.int64))


def _positions(specs: Sequence[SampleSpec]) -> torch.Tensor:
    return torch.tensor([s.position for s in specs], dtype=torch.int64)
