"""Attention of one query token per sequence over its KV blocks, split by positions, merged from left to right.

Axes: R sequences, Q query heads, H kv heads, G = Q / H, D head dim, N blocks of the pool, L layers, C = 2 (K, V),
T tokens of a block, B blocks of a table, P pieces of PIECE_TOKENS positions, S positions of a piece.

Nothing that shapes a sum is tuned or follows the batch: tiles, warps and pieces are constants of the numerics class,
and what varies between steps is no part of what is compiled.
"""

from typing import Final

import torch
import triton
import triton.language as tl

from kernels.segments import PIECE_TOKENS

# Query heads that share a tile. The matrix instruction of Hopper takes 64 rows; for a smaller tile the compiler picks
# another one, so a group is padded. Float32 has no matrix instruction: 16 is the least that a dot takes.
GROUP_TILE: Final = {torch.bfloat16: 64, torch.float32: 16}
MAX_HEAD_DIM: Final = {torch.bfloat16: 256, torch.float32: 128}  # a piece of K or V in Hopper's shared memory
ATTEND_OPTIONS: Final = {
    "num_warps": 8,
    "num_stages": 1,
    "enable_fp_fusion": False,
}  # scale, then subtract: two roundings
MERGE_OPTIONS: Final = {"num_warps": 1, "num_stages": 1, "enable_fp_fusion": False}


@triton.jit(do_not_specialize=["tables_ptr", "lengths_ptr", "B"])
def _attend_piece_kernel(
    q_ptr, kv_ptr, tables_ptr, lengths_ptr, o_ptr, top_ptr, sum_ptr, block_stride, B, scale,
    H: tl.constexpr, G: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
    TILE_G: tl.constexpr, TILE_D: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(2)
    head, first_g = tl.program_id(1) % H, tl.program_id(1) // H * TILE_G
    length = tl.load(lengths_ptr + row)
    if piece * PIECE >= length:
        return
    g, d = first_g + tl.arange(0, TILE_G), tl.arange(0, TILE_D)
    position = piece * PIECE + tl.arange(0, PIECE)
    seen = position < length
    block = tl.load(tables_ptr + row * B + position // T, mask=seen, other=0).to(tl.int64)  # a pool passes 2**31
    token = block * block_stride + head * T * D + position % T * D
    kv_mask, kv_at = seen[:, None] & (d < D)[None, :], token[:, None] + d[None, :]
    k = tl.load(kv_ptr + kv_at, mask=kv_mask, other=0.0)
    q_mask = (g < G)[:, None] & (d < D)[None, :]
    q = tl.load(q_ptr + (row * H + head) * G * D + g[:, None] * D + d[None, :], mask=q_mask, other=0.0).to(k.dtype)

    score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    score = tl.where(seen[None, :], score, float("-inf"))
    top = tl.max(score, 1)
    p = tl.exp(score - top[:, None])
    # Read here and not beside K, V takes K's place in shared memory. Masked: 0 × stale NaN is NaN.
    v = tl.load(kv_ptr + H * T * D + kv_at, mask=kv_mask, other=0.0)
    o = tl.dot(p.to(v.dtype), v, input_precision="ieee")

    partial = ((row * tl.num_programs(2) + piece) * H + head) * G + g
    tl.store(o_ptr + partial[:, None] * D + d[None, :], o, mask=q_mask)
    tl.store(top_ptr + partial, top, mask=g < G)
    tl.store(sum_ptr + partial, tl.sum(p, 1), mask=g < G)


@triton.jit(do_not_specialize=["lengths_ptr", "P"])
def _merge_pieces_kernel(
    o_ptr, top_ptr, sum_ptr, lengths_ptr, out_ptr, P,
    Q: tl.constexpr, D: tl.constexpr, TILE_D: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(lengths_ptr + row)
    d = tl.arange(0, TILE_D)
    top, total, o = float("-inf"), 0.0, tl.zeros([TILE_D], tl.float32)
    for piece in range(0, tl.cdiv(length, PIECE)):
        partial = (row * P + piece) * Q + head
        piece_top = tl.load(top_ptr + partial)
        merged_top = tl.maximum(top, piece_top)
        old, new = tl.exp(top - merged_top), tl.exp(piece_top - merged_top)  # the first piece: 0 and 1
        total = tl.fma(tl.load(sum_ptr + partial), new, total * old)
        o = tl.fma(tl.load(o_ptr + partial * D + d, mask=d < D, other=0.0), new, o * old)
        top = merged_top
    total = tl.where(length > 0, total, 1.0)
    tl.store(out_ptr + (row * Q + head) * D + d, tl.div_rn(o, total), mask=d < D)


def paged_decode_attention(
    q_RQD: torch.Tensor,
    kv_NLCHTD: torch.Tensor,
    layer: int,
    block_tables_RB: torch.Tensor,
    lengths_R: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """softmax(q · Kᵀ · scale) · V over the first lengths_R[r] positions of each sequence r.

    Each piece of PIECE_TOKENS positions is computed about its own maximum by a program of its own, and a second kernel
    merges the pieces from left to right and divides once. The bits of a sequence depend neither on its batch, on the
    width of the tables, nor on T. Unwritten slots and table entries past a sequence's end may hold anything.

    Args:
        q_RQD: [R, Q, D] float32 contiguous; query head q reads kv head q // G. Rounded here with a bfloat16 pool.
        kv_NLCHTD: the pool, plain layout, float32 (D ≤ 128) or bfloat16 (D ≤ 256), contiguous; T divides PIECE_TOKENS.
            The queries' own keys and values are already in it.
        layer: in [0, L).
        block_tables_RB: [R, B] int32 or int64, contiguous, in use in [0, N): unchecked, a check would synchronise.
        lengths_R: [R] int32 or int64, at most B * T, unchecked. A sequence of length 0 (padding of a batch) gives 0.
        scale: multiplies each dot product, in float32.

    Returns: [R, Q, D] float32 contiguous.
    Cost: K and V are read once per ⌈G / GROUP_TILE⌉; 4 * D flops for each position and head of a padded group;
        4 * (D + 2) bytes per query head and piece are written and read again, in a buffer for all P that B allows.
    Accuracy: ‖out − ref‖ / ‖ref‖ against float64 ≤ 1e-5 (float32), 5e-3 (bfloat16), as computed in the interpreter.
    Reference: kernels.paged_attention (equal to rounding).
    Source: block tables after Kwon et al. 2023, arXiv:2309.06180; merge after Milakov, Gimelshein, arXiv:1805.02867.
    """
    _check(q_RQD, kv_NLCHTD, layer, block_tables_RB, lengths_R)
    _, L, C, H, T, D = kv_NLCHTD.shape
    R, Q, B = *q_RQD.shape[:2], block_tables_RB.shape[1]
    out_RQD = torch.empty_like(q_RQD)
    if not out_RQD.numel():
        return out_RQD
    P, tile_g = triton.cdiv(B * T, PIECE_TOKENS), GROUP_TILE[kv_NLCHTD.dtype]
    tile_d = max(16, triton.next_power_of_2(D))
    o_RPQD, top_RPQ, sum_RPQ = q_RQD.new_empty(R, P, Q, D), q_RQD.new_empty(R, P, Q), q_RQD.new_empty(R, P, Q)
    _attend_piece_kernel[(R, H * triton.cdiv(Q // H, tile_g), P)](
        q_RQD, kv_NLCHTD[:, layer], block_tables_RB, lengths_R, o_RPQD, top_RPQ, sum_RPQ, L * C * H * T * D, B, scale,
        H=H, G=Q // H, T=T, D=D, TILE_G=tile_g, TILE_D=tile_d, PIECE=PIECE_TOKENS, **ATTEND_OPTIONS,
    )  # fmt: skip
    _merge_pieces_kernel[(R, Q)](
        o_RPQD, top_RPQ, sum_RPQ, lengths_R, out_RQD, P, Q=Q, D=D, TILE_D=tile_d, PIECE=PIECE_TOKENS, **MERGE_OPTIONS
    )
    return out_RQD


def _check(
    q_RQD: torch.Tensor, kv_NLCHTD: torch.Tensor, layer: int, tables_RB: torch.Tensor, lengths_R: torch.Tensor
) -> None:
    _, L, C, H, T, D = kv_NLCHTD.shape
    R, Q, _ = q_RQD.shape
    assert kv_NLCHTD.dtype in GROUP_TILE and kv_NLCHTD.is_contiguous() and C == 2, (kv_NLCHTD.shape, kv_NLCHTD.dtype)
    assert PIECE_TOKENS % T == 0 and 0 <= layer < L, (T, layer, L)
    assert q_RQD.dtype == torch.float32 and q_RQD.is_contiguous(), (q_RQD.shape, q_RQD.dtype)
    assert q_RQD.shape[2] == D <= MAX_HEAD_DIM[kv_NLCHTD.dtype] and Q % H == 0, (q_RQD.shape, kv_NLCHTD.shape)
    for ids in (tables_RB, lengths_R):
        assert ids.dtype in (torch.int32, torch.int64) and ids.is_contiguous(), (ids.shape, ids.dtype)
        assert ids.shape[0] == R and ids.device == q_RQD.device == kv_NLCHTD.device, (ids.shape, ids.device)
    assert tables_RB.ndim == 2 and lengths_R.ndim == 1, (tables_RB.shape, lengths_R.shape)
