"""Philox4x32-10: random words as a pure function of a key and a counter.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

import numpy as np
import numpy.typing as npt

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF

Words = npt.NDArray[np.uint64]


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Four 32-bit words per counter.

    Args:
        counter: four uint64 arrays of one shape or broadcastable to it, each value below 2³².
        key: two words, low word first.

    Returns: four uint64 arrays with values below 2³²: lanes 0 to 3.
    """
    c0, c1, c2, c3 = counter
    for step in range(ROUNDS):
        k0, k1 = (np.uint64((word + step * add) & WORD) for word, add in zip(key, KEY_STEPS, strict=True))
        product0, product1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1 = (product1 >> np.uint64(32)) ^ c1 ^ k0, product1 & np.uint64(WORD)
        c2, c3 = (product0 >> np.uint64(32)) ^ c3 ^ k1, product0 & np.uint64(WORD)
    return c0, c1, c2, c3
