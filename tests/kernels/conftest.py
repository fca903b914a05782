"""Fresh random data for every run; pytest prints the seed beside a failure."""

import secrets

import numpy as np
import pytest
import torch


@pytest.fixture
def rng() -> np.random.Generator:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    torch.manual_seed(seed)
    return np.random.default_rng(seed)
