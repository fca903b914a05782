"""Draw a token id from each row of logits: filters, then the Gumbel maximum under counter-based noise.

Axes: R rows, V vocabulary, I ids kept by the filters.
"""

import numpy as np
import numpy.typing as npt
import torch

from kernels.philox import WORD, Words, philox4x32

KIND_TOKEN = 0  # second counter word: what a draw is for; draws of another purpose take another number

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


def sample(
    logits_RV: torch.Tensor, filters_R4: torch.Tensor, keys_R: torch.Tensor, positions_R: torch.Tensor
) -> torch.Tensor:
    """The id with the greatest score − log(−log u) among those kept; ties go to the lowest id.

    score = logit / temperature. Kept, in this order: min_p keeps exp(score − max) ≥ min_p; top_k the first k by score,
    then id; top_p, in that order, those before which the float32 running sum of exp(score − max) is below
    top_p × its total. u = ((x >> 9) + ½) · 2⁻²³, x = lane id mod 4 of Philox4x32-10 at counter
    (position, kind, id // 4, 0). Temperature 0 is the argmax of the logits and draws nothing.

    Args:
        logits_RV: [R, V] float32 contiguous, not NaN; −∞ bans an id; at least one is finite.
        filters_R4: [R, 4] float64: temperature ≥ 0, min_p (0 off), top_k (0 off), top_p (1 off).
        keys_R: [R] int64: the bits of (seed + choice) mod 2⁶⁴.
        positions_R: [R] int64 in [0, 2³²): index of the generated token.

    Returns: [R] int64.
    """
    rows = zip(logits_RV.numpy(), filters_R4.tolist(), keys_R.tolist(), positions_R.tolist(), strict=True)
    return torch.tensor([_sample_row(*row) for row in rows], dtype=torch.int64)


def _sample_row(logits_V: Floats, filters: list[float], key: int, position: int) -> int:
    temperature, min_p, top_k, top_p = filters
    if temperature == 0:
        return int(logits_V.argmax())
    scores_V = logits_V / np.float32(temperature)
    if min_p <= 0 and top_k <= 0 and top_p >= 1:
        return int((scores_V + _noise_all(len(scores_V), key, position)).argmax())
    ids_I = _kept_ids(scores_V, min_p, int(top_k), top_p)
    perturbed_I = scores_V[ids_I] + _noise_at(ids_I, key, position)
    return int(ids_I[perturbed_I.argmax()])


def _kept_ids(scores_V: Floats, min_p: float, top_k: int, top_p: float) -> Ids:
    """Ids that pass the filters, ascending."""
    top = scores_V.max()
    ids_I = np.flatnonzero(np.exp(scores_V - top) >= np.float32(min_p))
    if top_k > 0 or top_p < 1:
        if 0 < top_k < len(ids_I):  # only these can be among the first k: what is left to sort is short
            scores_I = scores_V[ids_I]
            ids_I = ids_I[scores_I >= np.partition(scores_I, -top_k)[-top_k]]
        ids_I = _by_score(scores_V, ids_I)
        ids_I = ids_I[:top_k] if top_k > 0 else ids_I
    if top_p < 1:
        sums_I = np.cumsum(np.exp(scores_V[ids_I] - top), dtype=np.float32)
        ids_I = ids_I[: 1 + np.count_nonzero(sums_I < np.float32(top_p) * sums_I[-1])]  # the first has 0 before it
    return np.sort(ids_I)


def _by_score(scores_V: Floats, ids_I: Ids) -> Ids:
    """Ids with descending scores, equal ones ascending: one sort of 64-bit keys, score bits above id bits."""
    bits = (scores_V[ids_I] + np.float32(0)).view(np.int32)  # −0 ranks with +0
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # signed order of the integers is the order of the floats
    keys = (~ascending).astype(np.int64) << 32 | ids_I
    return np.sort(keys) & WORD


def _noise_all(vocabulary: int, key: int, position: int) -> Floats:
    """Gumbel noise of every id."""
    groups = np.arange(-(-vocabulary // 4), dtype=np.uint64)
    lanes = np.stack(philox4x32(_counter(groups, position), _key_words(key)), axis=1)
    return _gumbel(lanes.reshape(-1)[:vocabulary])


def _noise_at(ids_I: Ids, key: int, position: int) -> Floats:
    """Gumbel noise of chosen ids."""
    lanes = np.stack(philox4x32(_counter((ids_I // 4).astype(np.uint64), position), _key_words(key)), axis=1)
    return _gumbel(lanes[np.arange(len(ids_I)), ids_I % 4])


def _counter(groups: Words, position: int) -> tuple[Words, Words, Words, Words]:
    return np.full(1, position, np.uint64), np.full(1, KIND_TOKEN, np.uint64), groups, np.zeros(1, np.uint64)


def _key_words(key: int) -> tuple[int, int]:
    return key & WORD, key >> 32 & WORD


def _gumbel(words: Words) -> Floats:
    uniform = ((words >> np.uint64(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    noise: Floats = -np.log(-np.log(uniform))
    return noise
