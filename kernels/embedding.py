"""Look up the vectors of token ids."""

import torch


def embedding(ids_M: torch.Tensor, table_VK: torch.Tensor) -> torch.Tensor:
    """table[ids].

    Args:
        ids_M: [M] int64, each in [0, V); others raise IndexError.
        table_VK: [V, K] float32 contiguous (holding bf16-rounded values in the bf16 class).

    Returns: [M, K] float32 contiguous.
    """
    return table_VK.index_select(0, ids_M)
