"""Engines of every family for tests: whatever this machine can run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.errors import ConfigError
from libs.engine.engine_spec import EngineSpec, OpenEngine, Private
from libs.engine.kernel_choice import settle_kernels
from libs.engine.model_config import load_model_config
from libs.engine.opening import open_engine

FAMILIES = ("torch", "native")

Load = Callable[..., Any]  # (model_dir, dtype="float32", block_tokens=16) → an engine over a pool of its own


def settled(family: str) -> str:
    """The kernels of a family on this machine; skips the test where there are none."""
    try:
        return settle_kernels(family)
    except ConfigError as error:
        pytest.skip(error.message)


def opened(
    kernels: str,
    model_dir: Path,
    dtype: str = "float32",
    *,
    blocks: int,
    block_tokens: int = 16,
    threads: int = 1,
    packed_dir: Path | None = None,
    wanted_tokens: int = 0,
) -> OpenEngine:
    """An engine over a pool of its own."""
    spec = EngineSpec(
        kernels=kernels,
        model_path=model_dir,
        dtype=dtype,
        threads=threads,
        block_tokens=block_tokens,
        packed_dir=packed_dir,
    )
    return open_engine(spec, load_model_config(model_dir, wanted_tokens), Private(blocks), lambda done, total: None)
