"""Native rms_norm, swiglu and rope_kv against float64, and against themselves by bits."""

import numpy as np
import pytest
import torch

from kernels.rope import rope, rope_tables
from tests.kernels.native_ops import Ops, Pool

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-3}
by_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def error(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.double() - expected).norm() / expected.norm())


def bits(x: torch.Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes()


@by_dtype
@pytest.mark.parametrize(("M", "K"), [(1, 1), (1, 576), (3, 17), (9, 100), (33, 64)])
def test_rms_norm_is_close_to_float64(ops: Ops, rng: np.random.Generator, M: int, K: int, dtype: torch.dtype) -> None:
    """Any width, rounded to the type of the next product's input."""
    x, weight = torch.randn(M, K) * 3, torch.randn(K)

    out = ops.rms_norm(x, weight, dtype)

    wide = x.double()
    assert error(out, wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight) <= TOLERANCE[dtype]


@by_dtype
def test_rms_norm_of_chosen_rows_is_theirs_alone(ops: Ops, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Rows may be picked, and each has the bits that it has by itself."""
    x, weight = torch.randn(40, 75), torch.randn(75)
    rows = torch.tensor([7, 0, 39, 7, 12], dtype=torch.int32)

    with ops.shuffled(threads=2, seed=5):
        together = ops.rms_norm(x, weight, dtype, rows)

    alone = [ops.rms_norm(x[row : row + 1], weight, dtype) for row in rows.tolist()]
    assert bits(together) == bits(torch.cat(alone))


@by_dtype
@pytest.mark.parametrize(("M", "F"), [(1, 1), (1, 1536), (4, 700), (5, 700), (37, 33)])
def test_swiglu_is_close_to_float64(ops: Ops, rng: np.random.Generator, M: int, F: int, dtype: torch.dtype) -> None:
    """Any width, few tokens and many; gates far out become the value or zero."""
    gate, up = torch.randn(M, F) * 10, torch.randn(M, F)
    gate.view(-1)[3::7] *= 20

    out = ops.swiglu(torch.cat((gate, up), 1), dtype)

    wide = gate.double()
    assert error(out, wide * torch.sigmoid(wide) * up) <= TOLERANCE[dtype]


@by_dtype
def test_swiglu_of_a_token_is_the_same_in_any_batch(ops: Ops, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Tokens together, in any order of tiles, have the bits that they have alone."""
    x = torch.randn(9, 2 * 1100)

    with ops.shuffled(threads=2, seed=3):
        together = ops.swiglu(x, dtype)

    assert bits(together) == bits(torch.cat([ops.swiglu(x[m : m + 1], dtype) for m in range(9)]))


@by_dtype
@pytest.mark.parametrize(("T", "D"), [(16, 64), (32, 16), (64, 80)])
@pytest.mark.parametrize(("first", "M"), [(37, 45), (36, 45), (36, 7)])
def test_rope_kv_rotates_rounds_and_stores(
    ops: Ops, rng: np.random.Generator, T: int, D: int, dtype: torch.dtype, first: int, M: int
) -> None:
    """Queries come out rotated, keys and values lie in their slots, and every other slot is as it was."""
    Q, H = 3, 2
    tables = rope_tables(D, 10_000.0, 200)
    pool = Pool.unwritten((9, 2, H), T, D, dtype)
    x = torch.randn(M, Q + 2 * H, D)
    positions = torch.arange(first, first + M, dtype=torch.int32)
    blocks = torch.randperm(9, dtype=torch.int32)[positions.long() // T].contiguous()

    with ops.shuffled(threads=2, seed=7):
        q = ops.rope_kv(x, tables, pool, 1, (positions, blocks))

    rotated = x.clone()
    rope(rotated[:, : Q + H], *(table[positions.long()] for table in tables))
    expected = torch.full((9, 2, 2, H, T, D), torch.nan, dtype=dtype)
    new = rotated[:, Q:].to(dtype).view(M, 2, H, D)
    expected[blocks.long(), 1, :, :, positions.long() % T] = new
    assert bits(q) == bits(rotated[:, :Q].to(dtype))
    assert torch.equal(torch.nan_to_num(pool.untiled(), 9e9), torch.nan_to_num(expected, 9e9))


def test_values_of_neighbour_tokens_survive_each_other(ops: Ops, rng: np.random.Generator) -> None:
    """Two tokens share each 32-bit word of V; written in two calls, both are there."""
    D = 32
    tables = rope_tables(D, 10_000.0, 16)
    pool = Pool.unwritten((1, 1, 1), 16, D, torch.bfloat16)
    x = torch.randn(16, 3, D)
    for m in (1, 0, *range(2, 16)):
        slot = (torch.tensor([m], dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
        ops.rope_kv(x[m : m + 1], tables, pool, 0, slot)

    assert torch.equal(pool.untiled()[0, 0, 1, 0], x[:, 2].bfloat16())
