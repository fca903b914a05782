"""Native paged attention: close to float64, and the bits of a query whatever else is computed, and how."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from tests.kernels.native_ops import Ops, Pool

S = 256
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-3}
by_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def bits(x: torch.Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes()


@dataclass
class Text:
    """Queries, keys and values of all positions of one sequence, as float32."""

    positions: int
    shape: tuple[int, int, int]  # Q, H, D
    qkv: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        Q, H, D = self.shape
        self.qkv = torch.randn(self.positions, Q + 2 * H, D)

    def expected(self, tokens: range, dtype: torch.dtype, window: int) -> torch.Tensor:
        Q, H, D = self.shape
        x = self.qkv.to(dtype).double()
        k, v = (x[:, Q + c * H : Q + (c + 1) * H].repeat_interleave(Q // H, dim=1) for c in (0, 1))
        scores = torch.einsum("nqd,sqd->qns", x[tokens.start : tokens.stop, :Q], k) * D**-0.5
        behind = torch.tensor(list(tokens))[:, None] - torch.arange(self.positions)
        hidden = (behind < 0) | (behind >= (window or self.positions))
        return torch.einsum("qns,sqd->nqd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


class Step:
    """Sequences written into a pool that held NaN, up to the last token each asks for."""

    def __init__(self, ops: Ops, dtype: torch.dtype, T: int, asked: list[tuple[Text, range]]) -> None:
        self.ops, self.asked = ops, asked
        used = [-(-tokens.stop // T) for _, tokens in asked]
        _, H, D = asked[0][0].shape
        shuffled = torch.randperm(sum(used) + 1, dtype=torch.int32)
        self.pool = Pool.unwritten((len(shuffled), 2, H), T, D, dtype)
        self.rows, queries = [], []
        for (sequence, tokens), last, count in zip(asked, np.cumsum(used), used, strict=True):
            table = shuffled[last - count : last].clone()
            positions = torch.arange(tokens.stop, dtype=torch.int32)
            slots = (positions, table[positions.long() // T].contiguous())
            still = (
                torch.ones(tokens.stop, D // 2),
                torch.zeros(tokens.stop, D // 2),
            )  # cos and sin that rotate nothing
            q = ops.rope_kv(sequence.qkv[: tokens.stop], still, self.pool, 1, slots)
            self.rows.append((tokens.start, len(tokens), table))
            queries.append(q[tokens.start :])
        self.q = torch.cat(queries)

    def attend(self, window: int = 0) -> list[torch.Tensor]:
        out = self.ops.attention(self.q, self.pool, 1, self.rows, window)
        return list(torch.split(out, [len(tokens) for _, tokens in self.asked]))


@by_dtype
@pytest.mark.parametrize("window", [0, 1, 100, 300])
@pytest.mark.parametrize("shape", [(9, 3, 64), (4, 4, 16), (8, 1, 48), (5, 1, 80), (14, 1, 256), (2, 2, 112)])
def test_is_close_to_float64(
    ops: Ops, rng: np.random.Generator, shape: tuple[int, int, int], window: int, dtype: torch.dtype
) -> None:
    """Decode rows and chunks of all kinds of heads, in and across pieces; unwritten slots hold NaN."""
    spans = [(0, 1), (600, 1), (255, 1), (256, 1), (0, 21), (250, 30), (511, 3)]
    asked = [(Text(base + n, shape), range(base, base + n)) for base, n in spans]

    outs = Step(ops, dtype, 16, asked).attend(window)

    for (sequence, tokens), out in zip(asked, outs, strict=True):
        expected = sequence.expected(tokens, dtype, window)
        error = float((out.double() - expected).norm() / expected.norm())
        assert error <= TOLERANCE[dtype], (tokens, error)


@by_dtype
@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize("shape", [(9, 3, 64), (3, 1, 16)])
def test_a_query_has_its_bits_whatever_is_computed_with_it(
    ops: Ops, rng: np.random.Generator, shape: tuple[int, int, int], window: int, dtype: torch.dtype
) -> None:
    """One by one = cut into chunks anywhere = beside others = any block size = any order of tiles and threads."""
    mine, other = Text(530, shape), Text(700, shape)
    everything = Step(ops, dtype, 16, [(mine, range(530))]).attend(window)[0]

    for T, cut in ((16, 1), (32, 255), (64, 256), (16, 300), (32, 527)):
        first = Step(ops, dtype, T, [(other, range(699, 700)), (mine, range(cut))])
        second = Step(ops, dtype, T, [(mine, range(cut, 530)), (other, range(3, 50)), (other, range(600, 601))])
        with ops.shuffled(threads=2, seed=cut):
            parts = [first.attend(window)[1], second.attend(window)[0]]
        assert bits(torch.cat(parts)) == bits(everything), (T, cut)
    for t in (0, 1, 15, 16, 254, 255, 256, 257, 400, 511, 512, 529):
        alone = Step(ops, dtype, 64, [(mine, range(t, t + 1))]).attend(window)[0]
        assert bits(alone[0]) == bits(everything[t]), t


@by_dtype
def test_a_piece_far_above_the_others_takes_all(ops: Ops, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Maxima that lie hundreds apart merge without infinities, from either side."""
    for peak in (3, 300, 599):
        sequence = Text(600, (3, 1, 32))
        sequence.qkv[599, :3] = 1.0
        sequence.qkv[peak, 3] = 100.0

        (out,) = Step(ops, dtype, 16, [(sequence, range(599, 600))]).attend()

        assert torch.equal(out[0].float(), sequence.qkv[peak, 4].to(dtype).float().expand(3, -1)), peak


@by_dtype
def test_a_query_that_is_not_finite_shows_it(ops: Ops, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """NaN in a query comes out as NaN, and in no other token."""
    sequence = Text(300, (6, 2, 32))
    sequence.qkv[290, 1] = torch.nan

    (out,) = Step(ops, dtype, 16, [(sequence, range(280, 300))]).attend()

    assert out[10, 1].isnan().all()
    assert int(out.isnan().sum()) == 32
