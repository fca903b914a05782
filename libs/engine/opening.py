"""Opens an engine over a pool: native kernels or the torch references, whichever was settled.

A family's code is imported only when it serves: torch takes seconds, and hundreds of megabytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import KvLayout
from libs.engine.counted_pool import CountedPool
from libs.engine.kernel_choice import level_of, tile_tag
from libs.engine.model_config import ModelConfig
from libs.engine.rows import Sampled, StepRow
from libs.engine.tensors import Progress

P = TypeVar("P", bound=CountedPool)


class Engine(Protocol):
    """What every family's engine does; docs in libs/engine/native/engine.py."""

    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]: ...

    def logits(self, rows: Sequence[StepRow]) -> Any:
        """[R, V] float32, an array or a tensor."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A pool that somebody else created: an open descriptor, kept by the caller, or a path."""

    source: int | Path

    def pool(self, kind: type[P], layout: KvLayout) -> P:
        return kind.attach(self.source, layout)


@dataclass(frozen=True, slots=True)
class Private:
    """A pool of this process's own: for benches and tests."""

    blocks: int

    def pool(self, kind: type[P], layout: KvLayout) -> P:
        return kind.private(layout, self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """What to open. `kernels` are settled ones; `threads` count the one that steps."""

    kernels: str
    model_path: Path  # a directory in Hugging Face form, or a .gguf file
    dtype: str
    threads: int
    block_tokens: int = 16
    packed_dir: Path | None = None  # where the host keeps packed weights; None: in memory of this process alone


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """An engine that has warmed up, its pool, and the name of its numerics class."""

    engine: Engine
    pool: CountedPool
    numerics_class: str


def open_engine(spec: EngineSpec, config: ModelConfig, memory: Shared | Private, progress: Progress) -> OpenEngine:
    """Takes a second (torch: several). Raises ConfigError when model, pool and machine do not fit together, and what
    `progress` raises.
    """
    try:
        layout = config.kv_layout(spec.block_tokens, spec.dtype, tile_tag(spec.kernels, spec.dtype))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if level_of(spec.kernels):
        from libs.engine.native.opening import open_native

        return open_native(spec, config, layout, memory, progress)
    from libs.engine.torch_opening import open_torch

    return open_torch(spec, layout, memory, progress)
