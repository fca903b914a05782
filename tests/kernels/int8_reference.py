"""The quantised products in numpy, bit for bit where the contract is exact.

Axes: M tokens, N outputs, K inputs.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

GROUP = 192  # inputs that share a weight's scale, at most
MOST = np.float32(127)

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def groups(cuts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(segment, begin, end) of each group of a weight, none of which crosses a segment."""
    for segment, (begin, end) in enumerate(pairwise(cuts)):
        for first in range(begin, end, GROUP):
            yield segment, first, min(first + GROUP, end)


def quantised(part: Floats) -> tuple[Integers, Floats]:
    """Integers [R, K] and scales [R, 1] of rows: s = max|x| / 127, q = RNE(x / s), and 0 where s = 0."""
    scale = (np.abs(part).max(axis=1, keepdims=True) / MOST).astype(np.float32)
    safe = np.where(scale > 0, scale, np.float32(1))
    return np.where(scale > 0, np.rint(part / safe), 0).astype(np.int64), scale


def int8_product(x_MK: Floats, weight_NK: Floats, cuts: Sequence[int]) -> Floats:
    """[M, N] float32: groups of a segment, then segments, are added from the left."""
    sums: dict[int, Floats] = {}
    inputs = [quantised(x_MK[:, begin:end]) for begin, end in pairwise(cuts)]
    for segment, begin, end in groups(cuts):
        q_MK, x_scale = inputs[segment]
        q_NK, w_scale = quantised(weight_NK[:, begin:end])
        exact = q_MK[:, begin - cuts[segment] : end - cuts[segment]] @ q_NK.T
        part = exact.astype(np.float32) * (x_scale * w_scale.T)
        sums[segment] = sums[segment] + part if segment in sums else part
    out = sums[0]
    for segment in range(1, len(sums)):
        out = out + sums[segment]
    return out


def dequantised(weight_NK: Floats, cuts: Sequence[int]) -> npt.NDArray[np.float64]:
    """What the integers and scales of a weight stand for."""
    out = np.zeros(weight_NK.shape)
    for _, begin, end in groups(cuts):
        q_NK, scale = quantised(weight_NK[:, begin:end])
        out[:, begin:end] = q_NK * scale.astype(np.float64)
    return out
