"""The angles of rotary positions, the same for every family of kernels. No torch here.

Axes: P positions, D head dim, F = D / 2 frequencies.
"""

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float32]


def angle_tables(head_dim: int, theta: float, positions: int) -> tuple[Table, Table]:
    """cos and sin [P, F] of position · theta^(−2f / D), computed in float64 and rounded once to float32."""
    assert head_dim % 2 == 0, head_dim
    frequency_F = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angle_PF = np.arange(positions, dtype=np.float64)[:, None] * frequency_F
    return np.cos(angle_PF).astype(np.float32), np.sin(angle_PF).astype(np.float32)
