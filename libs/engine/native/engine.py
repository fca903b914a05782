"""Runs steps on the native kernels: one call a step, from token ids to drawn ids, for a ragged batch.

Knows nothing of requests, orders or blocks' owners: rows come with their block tables and parameters.
"""

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kernels.native.structs import HrPool
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import SamplingParams
from libs.engine.native.kernels import Kernels
from libs.engine.native.model import NativeModel
from libs.engine.native.packed_file import address
from libs.engine.native.pool import NativePool
from libs.engine.native.step_rows import StepRows
from libs.engine.rows import Sampled, SampleSpec, StepRow

WARM_UP_TOKENS: Final = 33


class NativeEngine:
    """One model over one pool, single-threaded towards its caller; the kernels' team of threads works inside a step."""

    def __init__(self, kernels: Kernels, model: NativeModel, pool: NativePool) -> None:
        self.model = model
        self.pool = pool
        self._kernels = kernels
        self._rows = StepRows(pool.layout.block_tokens)
        self._pool_struct = _pool_struct(pool)

    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        """Advance every row once; results are in the order of the rows.

        KV is written for all rows, then fill counts are published, then tokens are drawn. A row whose hidden states or
        logits are not finite publishes nothing and answers `is_nan`, whether or not it was to draw. A row without
        `sample` answers None. Rows whose base is not committed (`CountedPool.is_committed`) must not be passed.
        """
        return self._step(rows, self._pool_struct, 0)

    def logits(self, rows: Sequence[StepRow]) -> npt.NDArray[np.float32]:
        """Like `step`, but returns the raw logits [R, V] float32 of each row's last token."""
        return self.step_with_logits(rows)[1]

    def step_with_logits(self, rows: Sequence[StepRow]) -> tuple[list[Sampled | None], npt.NDArray[np.float32]]:
        """Like `step`, and the raw logits [R, V] float32 of each row's last token with it."""
        logits_RV = np.empty((len(rows), self.model.config.vocab_size), np.float32)
        return self._step(rows, self._pool_struct, address(logits_RV)), logits_RV

    def warm_up(self) -> None:
        """Run a chunk and a decode row over blocks of its own: touches every weight, and fills caches and scratch."""
        layout = self.pool.layout
        blocks = blocks_for(WARM_UP_TOKENS, layout.block_tokens)
        spec = SampleSpec(SamplingParams(), position=0, choice=0, banned_ids=())
        scratch = NativePool.private(layout, blocks)
        struct = _pool_struct(scratch)
        self._step([StepRow([0] * (WARM_UP_TOKENS - 1), 0, range(blocks), spec)], struct, 0)
        self._step([StepRow([0], WARM_UP_TOKENS - 1, range(blocks), spec)], struct, 0)

    def _step(self, rows: Sequence[StepRow], pool: HrPool, logits_address: int) -> list[Sampled | None]:
        self._rows.fill(rows)
        self._kernels.step(self.model.address, ctypes.addressof(pool), self._rows, len(rows), logits_address)
        return self._rows.results(rows)


def _pool_struct(pool: NativePool) -> HrPool:
    return HrPool(
        kv=address(pool.blocks_NB),
        fill_counts=address(pool.fill_counts_N),
        blocks=pool.blocks,
        block_tokens=pool.layout.block_tokens,
    )
