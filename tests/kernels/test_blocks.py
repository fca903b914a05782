"""Ops that move KV: writing tokens, copying a tail, gathering and scattering blocks."""

import numpy as np
import pytest
import torch

from kernels.copy_block import copy_block
from kernels.gather_blocks import gather_blocks, scatter_blocks
from kernels.kv_write import kv_write

DTYPES = (torch.float32, torch.bfloat16)


def random_pool(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(6, 3, 2, 2, 16, 4).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_kv_write_fills_the_slots_and_nothing_else(rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Each token's K and V land in its block and offset of one layer, rounded to the pool's type."""
    pool, new = random_pool(dtype), torch.randn(5, 2, 2, 4)
    blocks, offsets = torch.tensor([4, 4, 0, 5, 1]), torch.tensor([14, 15, 0, 3, 3])
    expected = pool.clone()
    for token in range(5):
        expected[blocks[token], 1, :, :, offsets[token]] = new[token].to(dtype)

    kv_write(pool, 1, new, blocks, offsets)

    assert torch.equal(pool, expected)


@pytest.mark.parametrize("tokens", [0, 1, 15, 16])
def test_copy_block_takes_the_first_tokens_of_all_layers(rng: np.random.Generator, tokens: int) -> None:
    """Slots from `tokens` on, and every other block, keep their bytes."""
    pool = random_pool(torch.bfloat16)
    expected = pool.clone()
    expected[2, :, :, :, :tokens] = pool[5, :, :, :, :tokens]

    copy_block(pool, source=5, target=2, tokens=tokens)

    assert torch.equal(pool, expected)


@pytest.mark.parametrize("ids", [[], [3], [5, 0, 2]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_puts_back_what_gather_took(rng: np.random.Generator, ids: list[int], dtype: torch.dtype) -> None:
    """A round trip through a packed buffer is bit for bit."""
    pool = random_pool(dtype).view(6, -1)
    other = torch.zeros_like(pool)
    block_ids = torch.tensor(ids, dtype=torch.int64)

    packed = gather_blocks(pool, block_ids)
    scatter_blocks(other, block_ids, packed)

    assert packed.shape == (len(ids), pool.shape[1])
    assert torch.equal(other[block_ids], pool[block_ids])
    assert other.count_nonzero() == pool[block_ids].count_nonzero()
