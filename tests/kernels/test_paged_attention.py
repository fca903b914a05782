"""paged_attention against softmax attention in float64 over contiguous keys and values."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from kernels.kv_write import kv_write
from kernels.paged_attention import paged_attention, plan_attention
from kernels.segments import PIECE_TOKENS

S = PIECE_TOKENS
Q, H, D = 6, 2, 8
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@dataclass
class Case:
    """Rows as (base, new tokens) with random contents, scattered over a pool whose unwritten slots are NaN."""

    rows: list[tuple[int, int]]
    dtype: torch.dtype
    block_tokens: int = 16
    window: int = 0

    def __post_init__(self) -> None:
        used = [-(-(base + n) // self.block_tokens) for base, n in self.rows]
        shuffled = torch.randperm(sum(used) + 2)
        self.pool = torch.full((len(shuffled), 2, 2, H, self.block_tokens, D), torch.nan, dtype=self.dtype)
        self.tables = torch.zeros(len(self.rows), max(used), dtype=torch.int64)
        self.kv, self.q = [], []
        for row, (base, n) in enumerate(self.rows):
            self.tables[row, : used[row]] = shuffled[sum(used[:row]) : sum(used[: row + 1])]
            self.kv.append(torch.randn(base + n, 2, H, D))
            self.q.append(torch.randn(n, Q, D))
            self.write(row)

    def write(self, row: int) -> None:
        """Put what `kv` has for this row into its blocks."""
        positions = torch.arange(len(self.kv[row]))
        blocks = self.tables[row, positions // self.block_tokens]
        kv_write(self.pool, 1, self.kv[row], blocks, positions % self.block_tokens)

    def attend(self) -> list[torch.Tensor]:
        """Per row [n, Q, D]."""
        counts = [n for _, n in self.rows]
        starts = torch.tensor([0, *np.cumsum(counts)])
        plan = plan_attention(
            starts, torch.tensor([base for base, _ in self.rows]), self.tables, self.pool, self.window
        )
        return list(torch.split(paged_attention(torch.cat(self.q), self.pool, 1, plan, D**-0.5), counts))

    def expected(self, row: int) -> torch.Tensor:
        base, n = self.rows[row]
        kv = self.kv[row].to(self.dtype).double().repeat_interleave(Q // H, dim=2)
        scores = torch.einsum("nqd,sqd->qns", self.q[row].to(self.dtype).double(), kv[:, 0]) * D**-0.5
        behind = base + torch.arange(n)[:, None] - torch.arange(base + n)
        hidden = (behind < 0) | (behind >= (self.window or base + n))
        return torch.einsum("qns,sqd->nqd", scores.masked_fill(hidden, -torch.inf).softmax(-1), kv[:, 1])

    def check(self) -> None:
        for row, out in enumerate(self.attend()):
            error = (out.double() - self.expected(row)).abs().max().item()
            assert error < TOLERANCE[self.dtype], (row, self.rows[row], error)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("block_tokens", [16, 32, 64])
def test_decode_rows_of_all_lengths(rng: np.random.Generator, dtype: torch.dtype, block_tokens: int) -> None:
    """Rows that end in, at and just past a piece, short before long, are computed together."""
    bases = [0, 3, S - 2, S - 1, S, 2 * S - 1, 2 * S + 40, 15, 16]
    Case([(base, 1) for base in bases], dtype, block_tokens).check()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("base", "n"), [(0, 2), (0, 300), (250, 10), (S, S), (S - 1, 2), (513, 37)])
def test_chunks_are_causal_across_pieces(rng: np.random.Generator, dtype: torch.dtype, base: int, n: int) -> None:
    """Each token of a chunk sees itself and what is before it, wherever the chunk starts and ends."""
    Case([(base, n)], dtype).check()


@pytest.mark.parametrize("window", [1, 40, S, 300])
def test_a_window_hides_what_is_further_back(rng: np.random.Generator, window: int) -> None:
    """Rows whose windows lie in other pieces are computed together, and a chunk may be longer than its window."""
    bases = [0, 3, S - 1, S, 2 * S + 40, 3 * S + 5]
    Case([*((base, 1) for base in bases), (10, 400), (600, 70)], torch.float32, window=window).check()


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_ragged_step_mixes_decode_rows_and_chunks(rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Results come in the order of the rows, whatever was computed together."""
    Case([(5, 1), (0, 20), (300, 1), (S - 3, 7), (0, 1)], dtype).check()


@pytest.mark.parametrize("cut", [1, 100, S - 1, S, S + 1, 299])
def test_cutting_a_chunk_changes_nothing(rng: np.random.Generator, cut: int) -> None:
    """A prompt in one chunk or in two gives the same outputs to rounding."""
    whole = Case([(0, 300)], torch.float32)
    parts = [whole.q[0][:cut], whole.q[0][cut:]]
    (out,) = whole.attend()

    for base, q in zip((0, cut), parts, strict=True):
        whole.rows, whole.q = [(base, len(q))], [q]
        torch.testing.assert_close(whole.attend()[0], out[base : base + len(q)], rtol=1e-5, atol=1e-5)


def test_huge_scores_do_not_overflow(rng: np.random.Generator) -> None:
    """Pieces whose maxima are far apart merge without infinities.

    Scores of 1e5 are rounded to a hundredth, so no two keys have scores closer than hundreds.
    """
    case = Case([(400, 1)], torch.float32)
    case.q[0] = 1e4 * torch.randn(1, Q, 1).sign().expand(1, Q, D)
    case.kv[0][:, 0] = torch.randperm(401)[:, None, None] / 100
    case.write(0)
    case.check()
