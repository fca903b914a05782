"""Philox4x32-10 against the known answers published with Random123."""

import numpy as np
import pytest

from kernels.philox import philox4x32

ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_gives_the_published_words(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    """All four lanes match."""
    c0, c1, c2, c3 = (np.full(1, word, np.uint64) for word in counter)

    assert tuple(int(lane[0]) for lane in philox4x32((c0, c1, c2, c3), key)) == words


def test_counters_are_independent_of_their_neighbours() -> None:
    """A vector of counters gives what each gives alone."""
    zero = np.zeros(1, np.uint64)
    many = philox4x32((zero, zero, np.arange(9, dtype=np.uint64), zero), (7, 8))

    for group in range(9):
        alone = philox4x32((zero, zero, np.full(1, group, np.uint64), zero), (7, 8))
        assert [lane[group] for lane in many] == [lane[0] for lane in alone]
