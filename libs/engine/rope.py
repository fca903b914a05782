"""The frequencies of rotary positions under each kind of scaling that checkpoints name. Pure numbers, no torch.

Formulas are those of the `transformers` library (modeling_rope_utils.py), computed in float64.
Axes: P positions, D head dim, F = D / 2 frequencies, from the fastest to the slowest.
"""

import math
from dataclasses import dataclass

import numpy as np

from kernels.angles import Frequencies, Table, angle_tables, plain_frequencies


@dataclass(frozen=True, slots=True)
class Linear:
    """Positions divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A base that grows with the context (NTK), fixed here for `context_tokens`.

    A base that grew with each sequence would give its earlier keys other angles than a prefix of it has, so that
    neither chunks nor prefix hits could be equal. At `original_tokens` the frequencies are the plain ones.
    """

    factor: float
    original_tokens: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Yarn:
    """Slow frequencies divided by `factor`, fast ones as they are, a ramp between; cos and sin times `amplitude`.

    Source: Peng et al. 2023, arXiv:2309.00071. `beta_fast` and `beta_slow` are turns within the original context.
    """

    factor: float
    original_tokens: int
    beta_fast: float
    beta_slow: float
    is_truncated: bool  # the ramp begins and ends at whole dimensions
    amplitude: float


@dataclass(frozen=True, slots=True)
class Llama3:
    """As Llama 3.1: long waves divided by `factor`, short ones as they are, those between smoothed."""

    factor: float
    original_tokens: int
    low_freq_factor: float
    high_freq_factor: float


Scaling = Linear | Dynamic | Yarn | Llama3


@dataclass(frozen=True, slots=True)
class Rope:
    """How a model's queries and keys turn with their positions; without scaling by plain frequencies."""

    theta: float
    scaling: Scaling | None = None

    def tables(self, head_dim: int, positions: int) -> tuple[Table, Table]:
        """cos and sin [P, F] float32, as `angle_tables` gives them."""
        amplitude = self.scaling.amplitude if isinstance(self.scaling, Yarn) else 1.0
        return angle_tables(frequencies(self, head_dim), positions, amplitude)


def frequencies(rope: Rope, head_dim: int) -> Frequencies:
    """[F] float64, radians a position."""
    match rope.scaling:
        case Linear(factor):
            return plain_frequencies(head_dim, rope.theta) / factor
        case Dynamic() as dynamic:
            return plain_frequencies(head_dim, _grown_theta(rope.theta, dynamic, head_dim))
        case Yarn() as yarn:
            return _yarn(plain_frequencies(head_dim, rope.theta), rope.theta, yarn, head_dim)
        case Llama3() as llama3:
            return _llama3(plain_frequencies(head_dim, rope.theta), llama3)
    return plain_frequencies(head_dim, rope.theta)


def _grown_theta(theta: float, dynamic: Dynamic, head_dim: int) -> float:
    growth = dynamic.factor * dynamic.context_tokens / dynamic.original_tokens - (dynamic.factor - 1)
    return float(theta * growth ** (head_dim / (head_dim - 2)))


def _yarn(plain_F: Frequencies, theta: float, yarn: Yarn, head_dim: int) -> Frequencies:
    def dimension(turns: float) -> float:
        """Where a frequency turns so often within the original context."""
        return head_dim * math.log(yarn.original_tokens / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(yarn.beta_fast), dimension(yarn.beta_slow)
    if yarn.is_truncated:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low or 0.001
    slow_F = np.clip((np.arange(len(plain_F)) - low) / width, 0, 1)
    scaled_F: Frequencies = plain_F / yarn.factor * slow_F + plain_F * (1 - slow_F)
    return scaled_F


def _llama3(plain_F: Frequencies, llama3: Llama3) -> Frequencies:
    waves_F = llama3.original_tokens * plain_F / (2 * math.pi)  # how many within the original context
    low, high = llama3.low_freq_factor, llama3.high_freq_factor
    smooth_F = np.clip((waves_F - low) / (high - low), 0, 1)
    scaled_F: Frequencies = (1 - smooth_F) * plain_F / llama3.factor + smooth_F * plain_F
    return scaled_F
