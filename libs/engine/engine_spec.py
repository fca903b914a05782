"""What an engine is opened from, and what comes of it: plain values, the same for every family of kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from libs.contracts.kv_layout import KvLayout
from libs.engine.counted_pool import CountedPool
from libs.engine.op_times import OpTimes
from libs.engine.rows import Sampled, StepRow

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
    op_times: OpTimes | None = None  # None: the kernels do not count
