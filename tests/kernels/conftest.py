"""Fresh random data for every run; pytest prints the seed beside a failure. Native operations of each level."""

import secrets

import numpy as np
import pytest
import torch

from kernels.native.levels import LEVELS, supported_levels
from kernels.native.library import load
from tests.kernels.native_ops import Ops


@pytest.fixture
def rng() -> np.random.Generator:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    torch.manual_seed(seed)
    return np.random.default_rng(seed)


@pytest.fixture(params=LEVELS, scope="session")
def ops(request: pytest.FixtureRequest) -> Ops:
    if request.param not in supported_levels():
        pytest.skip(f"this processor does not run {request.param}")
    return Ops(load(request.param))
