"""Causal attention of each row's new tokens over its KV blocks, or a window of them, in pieces at absolute positions.

Axes: M tokens, R rows, Q query heads, H kv heads, G = Q / H, D head dim, B blocks of a table, T tokens of a block,
W tokens of a row in this step, E = G · W queries sharing a head's keys, S positions gathered for a piece.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from kernels.segments import PIECE_TOKENS

LOWEST: Final = torch.finfo(torch.float32).min
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one piece of a group reads. Rows and tokens that do not reach it yet are not among the first and last;
    those whose window lies beyond it are, and see nothing.
    """

    rows: int  # the first rows of the group reach into this piece
    first_token: int  # of each row's new tokens, the first that sees this piece
    tiles: torch.Tensor  # [2 * rows * H * blocks] int64: K tiles, then V tiles, of layer 0
    hidden_RWS: torch.Tensor | None  # bool; None when every token sees every position
    unwritten: torch.Tensor  # int64 indices into the R * H * S gathered slots that hold nothing yet


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows with equally many new tokens, longest first, computed together."""

    tokens: torch.Tensor  # [R * W] int64: indices into M
    shape: tuple[int, int]  # R, W
    pieces: tuple[_Piece, ...]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Who reads what in one step: made once by `plan_attention`, used by every layer, opaque elsewhere."""

    groups: tuple[_Group, ...]


def plan_attention(
    row_starts: torch.Tensor,
    bases_R: torch.Tensor,
    block_tables_RB: torch.Tensor,
    kv_NLCHTD: torch.Tensor,
    window: int = 0,
) -> AttentionPlan:
    """Prepare `paged_attention` for a step over R rows.

    Args:
        row_starts: [R + 1] int64 on CPU: row r holds tokens row_starts[r] up to row_starts[r + 1] of M; none is empty.
        bases_R: [R] int64 on CPU: absolute position of each row's first token.
        block_tables_RB: [R, B] int64 on CPU, each in [0, N); padding is any valid block.
        kv_NLCHTD: the pool the step will use; only its shape is read.
        window: a token sees so many positions, itself included; 0: all up to its own.
    """
    starts, bases, tables = row_starts.numpy(), bases_R.numpy(), block_tables_RB.numpy()
    counts = np.diff(starts)
    groups = []
    single = np.flatnonzero(counts == 1)
    if single.size:
        order = single[np.argsort(-bases[single], kind="stable")]
        groups.append(_plan_group(starts[order], 1, bases[order], tables[order], kv_NLCHTD.shape, window))
    for row in np.flatnonzero(counts > 1):
        rows = slice(row, row + 1)
        groups.append(_plan_group(starts[rows], int(counts[row]), bases[rows], tables[rows], kv_NLCHTD.shape, window))
    return AttentionPlan(tuple(groups))


def _plan_group(
    starts_R: IntArray, width: int, bases_R: IntArray, tables_RB: IntArray, shape: torch.Size, window: int
) -> _Group:
    tokens_RW = starts_R[:, None] + np.arange(width)
    lengths_R = bases_R + width
    pieces = []
    first_seen = max(0, int(bases_R.min()) + 1 - window) if window else 0
    for start in range(first_seen // PIECE_TOKENS * PIECE_TOKENS, int(lengths_R[0]), PIECE_TOKENS):
        rows = int(np.searchsorted(-lengths_R, -start))  # lengths descend: those above start come first
        pieces.append(_plan_piece(start, lengths_R[:rows], width, tables_RB[:rows], shape, window))
    return _Group(torch.from_numpy(tokens_RW.reshape(-1)), (len(starts_R), width), tuple(pieces))


def _plan_piece(
    start: int, lengths_R: IntArray, width: int, tables_RB: IntArray, shape: torch.Size, window: int
) -> _Piece:
    _, L, C, H, T, _ = shape
    stop = min(start + PIECE_TOKENS, int(lengths_R[0]))
    blocks_RB = tables_RB[:, start // T : -(-stop // T)]
    head_tiles_CRHB = (
        blocks_RB[None, :, None, :] * (L * C * H)
        + np.arange(C)[:, None, None, None] * H
        + np.arange(H)[None, None, :, None]
    )
    positions_S = start + np.arange(blocks_RB.shape[1] * T)
    first_token = max(0, start + width - int(lengths_R[0]))
    end_RW = lengths_R[:, None] - width + 1 + np.arange(first_token, width)  # each token sees positions before it
    hidden_RWS = positions_S >= end_RW[:, :, None]
    if window:
        hidden_RWS |= positions_S < end_RW[:, :, None] - window
    row, slot = np.nonzero(positions_S >= lengths_R[:, None])
    unwritten = (row[:, None] * H + np.arange(H)) * len(positions_S) + slot[:, None]
    return _Piece(
        rows=len(lengths_R),
        first_token=first_token,
        tiles=torch.from_numpy(head_tiles_CRHB.reshape(-1)),
        hidden_RWS=torch.from_numpy(hidden_RWS) if hidden_RWS.any() else None,
        unwritten=torch.from_numpy(unwritten.reshape(-1)),
    )


def paged_attention(
    q_MQD: torch.Tensor, kv_NLCHTD: torch.Tensor, layer: int, plan: AttentionPlan, scale: float
) -> torch.Tensor:
    """softmax(q · Kᵀ · scale) · V over each row's positions up to the token's own.

    KV is cut at absolute positions 0, 256, 512, …; each piece is computed about its own maximum and merged from left
    to right, and the division comes once, at the end: a decode step and chunks of any length see the same pieces. A
    piece in which a token sees nothing leaves its sums as they are. Unwritten slots may hold anything, NaN too.

    Args:
        q_MQD: [M, Q, D] float32, any strides; query head q reads kv head q // G. Rounded here with a bfloat16 pool.
        kv_NLCHTD: the pool, float32 or bfloat16 contiguous; the step's own tokens are already in it.
        layer: in [0, L).
        plan: of this step, from `plan_attention`.
        scale: multiplies each dot product, in float32.

    Returns: [M, Q, D] float32 contiguous.
    Cost: 4 * Q * D flops for each pair of a token and a position it sees; K and V are copied once a piece.
    Source: block tables after Kwon et al. 2023, arXiv:2309.06180; merge after Milakov, Gimelshein, arXiv:1805.02867.
    """
    N, L, C, H, T, D = kv_NLCHTD.shape
    tiles_XE = kv_NLCHTD.view(N * L * C * H, T * D)[layer * C * H :]  # a tile id of layer 0 finds its twin in `layer`
    M, Q, _ = q_MQD.shape
    if kv_NLCHTD.dtype == torch.bfloat16:
        q_MQD = q_MQD.bfloat16().float()
    out_MQD = q_MQD.new_empty(M, Q, D)
    for group in plan.groups:
        R, W = group.shape
        q_RHGWD = q_MQD.index_select(0, group.tokens).view(R, W, H, Q // H, D).permute(0, 2, 3, 1, 4)
        o_RHGWD = _attend_group(q_RHGWD, tiles_XE, group.pieces, scale)
        out_MQD[group.tokens] = o_RHGWD.permute(0, 3, 1, 2, 4).reshape(R * W, Q, D)
    return out_MQD


def _attend_group(
    q_RHGWD: torch.Tensor, tiles_XE: torch.Tensor, pieces: tuple[_Piece, ...], scale: float
) -> torch.Tensor:
    top_RHGW, sum_RHGW, o_RHGWD = _attend_piece(q_RHGWD, tiles_XE, pieces[0], scale)  # every token reaches it
    for piece in pieces[1:]:
        at = (slice(piece.rows), slice(None), slice(None), slice(piece.first_token, None))
        piece_top, piece_sum, piece_o = _attend_piece(q_RHGWD[at], tiles_XE, piece, scale)
        merged_top = torch.maximum(top_RHGW[at], piece_top)
        old, new = (top_RHGW[at] - merged_top).exp_(), (piece_top - merged_top).exp_()
        sum_RHGW[at].mul_(old).addcmul_(piece_sum, new)
        o_RHGWD[at].mul_(old[..., None]).addcmul_(piece_o, new[..., None])
        top_RHGW[at] = merged_top
    return o_RHGWD.div_(sum_RHGW[..., None])


def _attend_piece(
    q_RHGWD: torch.Tensor, tiles_XE: torch.Tensor, piece: _Piece, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Maximum [R, H, G, W], sum of exponentials [R, H, G, W] and weighted values [R, H, G, W, D] within a piece."""
    R, H, G, W, D = q_RHGWD.shape
    k_RHSD, v_RHSD = tiles_XE.index_select(0, piece.tiles).float().view(2, R, H, -1, D)
    scores_RHES = (q_RHGWD.reshape(R, H, G * W, D) @ k_RHSD.transpose(2, 3)).mul_(scale)
    scores_RHGWS = scores_RHES.view(R, H, G, W, -1)
    if piece.hidden_RWS is not None:
        scores_RHGWS.masked_fill_(piece.hidden_RWS[:, None, None], -torch.inf)
    v_RHSD.view(-1, D).index_fill_(0, piece.unwritten, 0.0)  # 0 × stale NaN is NaN
    top_RHGW = scores_RHGWS.amax(dim=-1).clamp_(min=LOWEST)  # where nothing is seen: −∞ − −∞ would be NaN
    p_RHGWS = scores_RHGWS.sub_(top_RHGW[..., None]).exp_()
    sum_RHGW = p_RHGWS.sum(dim=-1)
    if tiles_XE.dtype == torch.bfloat16:
        p_RHGWS = p_RHGWS.bfloat16().float()
    o_RHED = p_RHGWS.view(R, H, G * W, -1) @ v_RHSD
    return top_RHGW, sum_RHGW, o_RHED.view(R, H, G, W, D)
