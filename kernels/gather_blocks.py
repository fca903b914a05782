"""Pack scattered KV blocks into one contiguous buffer and back, so that a transfer is one copy.

Axes: N blocks in the pool, B blocks to move, E elements of a block.
"""

import torch


def gather_blocks(pool_NE: torch.Tensor, block_ids_B: torch.Tensor) -> torch.Tensor:
    """Copy pool[block_ids] into a new contiguous tensor, bit for bit.

    Args:
        pool_NE: [N, E] contiguous, any dtype.
        block_ids_B: [B] int64, each in [0, N); others raise IndexError.

    Returns: [B, E], dtype of the pool.
    Cost: reads and writes B * E elements; no arithmetic.
    """
    return pool_NE.index_select(0, block_ids_B)


def scatter_blocks(pool_NE: torch.Tensor, block_ids_B: torch.Tensor, blocks_BE: torch.Tensor) -> None:
    """pool[block_ids] = blocks, bit for bit; the inverse of `gather_blocks`. Block ids are distinct."""
    pool_NE.index_copy_(0, block_ids_B, blocks_BE)
