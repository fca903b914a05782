"""The angles of rotary positions, the same for every family of kernels. No torch here.

Axes: P positions, D head dim, F = D / 2 frequencies.
"""

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float32]
Frequencies = npt.NDArray[np.float64]


def plain_frequencies(head_dim: int, theta: float) -> Frequencies:
    """[F] float64: theta^(−2f / D) radians a position."""
    assert head_dim % 2 == 0, head_dim
    frequency_F: Frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    return frequency_F


def angle_tables(frequency_F: Frequencies, positions: int, amplitude: float = 1.0) -> tuple[Table, Table]:
    """amplitude times cos and sin [P, F] of position · frequency, computed in float64 and rounded once to float32."""
    angle_PF = np.arange(positions, dtype=np.float64)[:, None] * frequency_F
    return (amplitude * np.cos(angle_PF)).astype(np.float32), (amplitude * np.sin(angle_PF)).astype(np.float32)
