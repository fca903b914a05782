"""Numbers for probes: made of integers alone, so the same on every machine. No torch here."""

import numpy as np
import numpy.typing as npt

from kernels.philox import philox4x32


def noise(stream: int, *shape: int) -> npt.NDArray[np.float32]:
    """Float32 in [−½, ½), another sequence for each stream."""
    zeros = np.zeros(1, np.uint64)
    count = np.arange(int(np.prod(shape)), dtype=np.uint64)
    words = philox4x32((count, zeros, zeros, zeros), (stream, 0))[0]
    return ((words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)).reshape(shape)
