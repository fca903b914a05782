"""Copy the first tokens of a block into another: copy-on-write of a shared tail."""

import torch


def copy_block(kv_NLCHTD: torch.Tensor, source: int, target: int, tokens: int) -> None:
    """kv[target, …, :tokens, :] = kv[source, …, :tokens, :], all layers, K and V, bit for bit.

    Args:
        kv_NLCHTD: the pool, contiguous; changed in place.
        source, target: distinct blocks in [0, N).
        tokens: in [0, T].

    Cost: reads and writes L * 2 * H * tokens * D elements.
    """
    kv_NLCHTD[target, ..., :tokens, :] = kv_NLCHTD[source, ..., :tokens, :]
