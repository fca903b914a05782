"""Native sampling: the reference's ids, exact kept sets, log-probabilities, and the same in any batch."""

import math

import numpy as np
import pytest
import torch

from kernels.log_softmax import log_softmax
from kernels.philox import philox4x32
from kernels.sample import sample
from tests.kernels.native_ops import Draw, Ops
from tests.kernels.test_sample import FILTERS, GREEDY, PLAIN, kept_ids, noise

GAP = 1e-4  # perturbed scores closer than this may swap between two libraries' logarithms


def draws(rng: np.random.Generator, count: int, filters: tuple[float, float, int, float]) -> list[Draw]:
    keys, positions = rng.integers(1 << 64, size=count, dtype=np.uint64), rng.integers(1 << 32, size=count)
    return [Draw(filters, int(key), int(position)) for key, position in zip(keys, positions, strict=True)]


def reference(logits_RV: torch.Tensor, rows: list[Draw]) -> list[int]:
    keys = torch.from_numpy(np.array([row.key for row in rows], np.uint64).view(np.int64))
    filters = torch.tensor([row.filters for row in rows], dtype=torch.float64)
    return sample(logits_RV, filters, keys, torch.tensor([row.position for row in rows])).tolist()


@pytest.mark.parametrize("at_once", [False, True])
def test_words_are_philox(ops: Ops, rng: np.random.Generator, at_once: bool) -> None:
    """One word at a time and many at once are the words of the reference."""
    key, position = int(rng.integers(1 << 64, dtype=np.uint64)), int(rng.integers(1 << 32))
    zero, groups = np.zeros(1, np.uint64), np.arange(80, dtype=np.uint64)
    lanes = philox4x32((zero + np.uint64(position), zero, groups, zero), (key & 0xFFFFFFFF, key >> 32))

    words = ops.philox(key, position, 320, at_once)

    assert words.tolist() == np.stack(lanes, axis=1).reshape(-1).tolist()


@pytest.mark.parametrize("filters", [GREEDY, *FILTERS, (2.0, 0.0, 40, 1.0), (3.0, 0.0, 0, 0.999)])
@pytest.mark.parametrize("V", [1, 7, 130, 1001, 49_152])
def test_draws_the_reference_s_ids(
    ops: Ops, rng: np.random.Generator, filters: tuple[float, float, int, float], V: int
) -> None:
    """Same filters, key and position, same id, unless the reference's own choice hangs on a rounding."""
    R = 4 if V > 2000 else 16
    logits, rows = torch.randn(R, V) * 3, draws(rng, R, filters)

    drawn = [one.token for one in ops.sample(logits, rows)]

    for r, (mine, theirs) in enumerate(zip(drawn, reference(logits, rows), strict=True)):
        if mine != theirs:
            scores = logits[r] / filters[0]
            gap = [float(scores[i]) + noise(i, rows[r].key, rows[r].position) for i in (mine, theirs)]
            assert abs(gap[0] - gap[1]) < GAP, (r, mine, theirs, gap)


@pytest.mark.parametrize("filters", [(2.0, 0.3, 0, 1.0), (2.0, 0.0, 5, 1.0), (2.0, 0.0, 0, 0.7), (2.0, 0.1, 9, 0.8)])
def test_exactly_the_kept_ids_can_be_drawn(ops: Ops, filters: tuple[float, float, int, float]) -> None:
    """Over many positions every id that passes the filters comes up, and none that does not; ties included."""
    logits = torch.linspace(3, 0, 8).repeat(2)[torch.randperm(16, generator=torch.Generator().manual_seed(1))]
    rows = [Draw(filters, 0, position) for position in range(3000)]

    drawn = {one.token for one in ops.sample(logits.expand(3000, 16).contiguous(), rows)}

    assert drawn == set(kept_ids(list(logits.numpy() / np.float32(filters[0])), filters))


@pytest.mark.parametrize("V", [40, 5000])
def test_equal_scores_are_kept_by_lowest_id(ops: Ops, V: int) -> None:
    """top_k among equal scores keeps the lowest ids, and −0 equals +0; greedy takes the first."""
    logits = torch.zeros(V)
    logits[1::2] = -0.0
    rows = [Draw((1.0, 0.0, 3, 1.0), 0, position) for position in range(200)]

    assert {one.token for one in ops.sample(logits.expand(200, V).contiguous(), rows)} == {0, 1, 2}
    assert ops.sample(logits[None], [Draw(GREEDY)])[0].token == 0


def test_top_p_of_many_ids_sorts_by_score_then_id(ops: Ops, rng: np.random.Generator) -> None:
    """Where thousands of ids tie, the running sum takes the lowest ids first."""
    V = 6000
    logits = torch.from_numpy(rng.integers(0, 3, V).astype(np.float32))
    rows = [Draw((1.0, 0.0, 0, 0.6), 5, position) for position in range(300)]
    kept = kept_ids(list(logits.numpy()), rows[0].filters)

    drawn = {one.token for one in ops.sample(logits.expand(300, V).contiguous(), rows)}

    assert drawn <= set(kept)
    assert reference(logits.expand(300, V).contiguous(), rows) == [
        one.token for one in ops.sample(logits.expand(300, V).contiguous(), rows)
    ]


@pytest.mark.parametrize("V", [1, 5, 9, 1000, 49_152])
def test_log_probabilities_are_those_of_the_raw_logits(ops: Ops, rng: np.random.Generator, V: int) -> None:
    """Bans and temperature change what is drawn, not its log-probability."""
    logits = torch.randn(6, V) * 5
    banned = (int(logits[0].argmax()),) if V > 1 else ()
    rows = [Draw((0.0 if r % 2 else 2.0, 0.0, 0, 1.0), r, 0, banned) for r in range(6)]

    drawn = ops.sample(logits, rows)

    ids = torch.tensor([[one.token] for one in drawn])
    expected = log_softmax(logits.double(), ids)[:, 0]
    assert float((torch.tensor([one.logprob for one in drawn]) - expected).abs().max()) <= 2e-5
    assert not set(banned) & set(ids.flatten().tolist())


@pytest.mark.parametrize("filters", [GREEDY, PLAIN, (1.0, 0.0, 3, 0.99), (1.0, 0.1, 0, 1.0)])
def test_banned_ids_are_never_drawn(ops: Ops, filters: tuple[float, float, int, float]) -> None:
    """A ban holds for greedy and sampled rows, first and last ids included."""
    logits = torch.zeros(50, 100)
    logits[:, [0, 17, 99]] = 30.0
    rows = [Draw(filters, 3, position, (0, 17, 99)) for position in range(50)]

    assert not {one.token for one in ops.sample(logits, rows)} & {0, 17, 99}


def test_a_row_draws_the_same_in_any_batch_by_any_threads(ops: Ops, rng: np.random.Generator) -> None:
    """Tokens and the bits of log-probabilities of rows together equal those of each alone."""
    logits = torch.randn(9, 3001) * 4
    rows = [draws(rng, 1, (GREEDY, PLAIN, (0.8, 0.02, 50, 0.9))[r % 3])[0] for r in range(9)]

    with ops.shuffled(threads=2, seed=11):
        together = ops.sample(logits, rows)

    assert together == [ops.sample(logits[r : r + 1], rows[r : r + 1])[0] for r in range(9)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 555, 1000])
def test_logits_that_are_not_finite_draw_nothing(ops: Ops, bad: float, at: int) -> None:
    """Such a row says so; its neighbour draws."""
    logits = torch.randn(2, 1001)
    logits[0, at] = bad

    first, second = ops.sample(logits, [Draw(PLAIN), Draw(PLAIN)])

    assert (first.token, first.is_nan) == (-1, True)
    assert second.token >= 0
    assert not second.is_nan
