"""log_softmax against its formula in float64."""

import numpy as np
import pytest
import torch

from kernels.log_softmax import log_softmax


@pytest.mark.parametrize(("R", "V"), [(1, 1), (2, 7), (3, 8), (2, 1001)])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_equals_the_direct_formula(rng: np.random.Generator, R: int, V: int, scale: float) -> None:
    """Every id's log-probability, with vocabularies smaller and larger than the eight segments."""
    logits = torch.randn(R, V) * scale
    ids = torch.arange(V).expand(R, V)

    expected = logits.double().log_softmax(dim=1)
    torch.testing.assert_close(log_softmax(logits, ids).double(), expected, rtol=1e-5, atol=1e-4)
