"""The library of an instruction level, or the reason why this machine has none."""

import ctypes

import pytest

from kernels.native.build import NoCompiler
from kernels.native.levels import supported_levels
from kernels.native.library import load


def load_or_skip(level: str | None = None) -> ctypes.CDLL:
    """The level's library; the test is skipped where the processor does not run it or nothing can build it."""
    if level is not None and level not in supported_levels():
        pytest.skip(f"this processor does not run {level}")
    try:
        return load(level)
    except NoCompiler as error:
        pytest.skip(str(error))
