"""Flattens the rows of a step into the index arrays that the kernels read.

Axes: M tokens of the step, R rows, B blocks of a table.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kernels.paged_attention import AttentionPlan, plan_attention
from libs.contracts.kv_layout import blocks_for
from libs.engine.rows import StepRow


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The rows of a step, flattened. All int64 on CPU."""

    ids_M: torch.Tensor
    positions_M: torch.Tensor
    blocks_M: torch.Tensor
    offsets_M: torch.Tensor
    starts_R: npt.NDArray[np.int64]
    last_R: torch.Tensor  # index in M of each row's last token
    attention: Mapping[int, AttentionPlan]  # by window


def build_batch(rows: Sequence[StepRow], kv_NLCHTD: torch.Tensor, windows: Collection[int] = (0,)) -> StepBatch:
    """Flatten rows for a step over a pool of this shape, by layers of these windows; 0 sees everything."""
    block_tokens = kv_NLCHTD.shape[4]
    counts_R = np.array([len(row.token_ids) for row in rows], np.int64)
    bases_R = np.array([row.base for row in rows], np.int64)
    assert counts_R.size and counts_R.min() > 0, "a step has rows and each row has tokens"
    starts = np.concatenate([[0], np.cumsum(counts_R)])
    tables_RB = _pad_tables(rows, block_tokens)
    rows_M = np.repeat(np.arange(len(rows)), counts_R)
    positions_M = np.arange(starts[-1]) + (bases_R - starts[:-1])[rows_M]
    ragged = torch.from_numpy(starts), torch.from_numpy(bases_R), torch.from_numpy(tables_RB)
    return StepBatch(
        ids_M=torch.from_numpy(np.concatenate([np.asarray(row.token_ids, np.int64) for row in rows])),
        positions_M=torch.from_numpy(positions_M),
        blocks_M=torch.from_numpy(tables_RB[rows_M, positions_M // block_tokens]),
        offsets_M=torch.from_numpy(positions_M % block_tokens),
        starts_R=starts[:-1],
        last_R=torch.from_numpy(starts[1:] - 1),
        attention={window: plan_attention(*ragged, kv_NLCHTD, window) for window in windows},
    )


def _pad_tables(rows: Sequence[StepRow], block_tokens: int) -> npt.NDArray[np.int64]:
    """[R, B]: the blocks each row reads or writes, padded with block 0."""
    used_R = [blocks_for(row.base + len(row.token_ids), block_tokens) for row in rows]
    tables_RB = np.zeros((len(rows), max(used_R)), np.int64)
    for table_B, row, used in zip(tables_RB, rows, used_R, strict=True):
        assert len(row.block_table) >= used, "the block table does not cover the row"
        table_B[:used] = row.block_table[:used]
    return tables_RB
