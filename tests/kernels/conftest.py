"""Fresh random data for every run; pytest prints the seed beside a failure. Native operations of each level."""

import secrets
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from kernels.native.levels import LEVELS, supported_levels
from kernels.native.library import load
from tests.kernels.native_levels import load_or_skip
from tests.kernels.native_linear import Native
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


@pytest.fixture(params=LEVELS, scope="module")
def level(request: pytest.FixtureRequest) -> str:
    load_or_skip(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def native(level: str) -> Iterator[Native]:
    with Native(level, threads=2) as native:
        yield native
