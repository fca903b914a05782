"""Store new keys and values in the slots of their tokens."""

import torch


def kv_write(
    kv_NLCHTD: torch.Tensor, layer: int, new_MCHD: torch.Tensor, blocks_M: torch.Tensor, offsets_M: torch.Tensor
) -> None:
    """kv[block, layer, :, :, offset] = new, rounded to the pool's dtype.

    Args:
        kv_NLCHTD: the pool, float32 or bfloat16 contiguous; changed in place.
        layer: in [0, L).
        new_MCHD: [M, 2, H, D] float32: keys, then values, any strides with contiguous D.
        blocks_M, offsets_M: [M] int64; (block, offset) pairs are distinct, in [0, N) and [0, T): not checked.

    Cost: writes 2 * M * H * D elements; no arithmetic.
    """
    kv_NLCHTD[:, layer][blocks_M, :, :, offsets_M] = new_MCHD.to(kv_NLCHTD.dtype)
