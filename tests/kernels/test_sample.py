"""sample against the contract, step by step in plain Python."""

import math

import numpy as np
import pytest
import torch

from kernels.philox import philox4x32
from kernels.sample import sample

GREEDY = (0.0, 0.0, 0, 1.0)
PLAIN = (1.0, 0.0, 0, 1.0)
FILTERS = [
    PLAIN,
    (0.7, 0.0, 0, 1.0),
    (1.0, 0.0, 5, 1.0),
    (1.0, 0.0, 10**6, 1.0),
    (1.5, 0.0, 0, 0.5),
    (1.0, 0.0, 0, 1e-30),
    (1.0, 0.05, 0, 1.0),
    (0.9, 0.01, 50, 0.9),
]


def draw(logits: torch.Tensor, filters: tuple[float, ...], key: int = 1, position: int = 0) -> int:
    signed = key - (1 << 64) if key >= 1 << 63 else key
    settings = torch.tensor([filters], dtype=torch.float64)
    return int(sample(logits[None], settings, torch.tensor([signed]), torch.tensor([position])))


def kept_ids(scores: list[np.float32], filters: tuple[float, ...]) -> list[int]:
    """min_p, then top_k, then top_p, one id at a time."""
    _, min_p, top_k, top_p = filters
    weights = [np.exp(score - max(scores)) for score in scores]
    kept = [i for i in range(len(scores)) if weights[i] >= np.float32(min_p)]
    kept.sort(key=lambda i: (-scores[i], i))
    kept = kept[: int(top_k)] if top_k else kept
    total = np.float32(0)
    before = []
    for i in kept:
        before.append(total)
        total = np.float32(total + weights[i])
    return [i for i, mass in zip(kept, before, strict=True) if top_p >= 1 or mass < np.float32(top_p) * total]


def noise(i: int, key: int, position: int) -> float:
    words = (position, 0, i // 4, 0)
    c0, c1, c2, c3 = (np.full(1, word, np.uint64) for word in words)
    x = int(philox4x32((c0, c1, c2, c3), (key & 0xFFFFFFFF, key >> 32))[i % 4][0])
    return -math.log(-math.log(((x >> 9) + 0.5) * 2.0**-23))


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("V", [1, 7, 130])
def test_draws_the_gumbel_maximum_of_the_kept_ids(rng: np.random.Generator, filters: tuple[float, ...], V: int) -> None:
    """The id drawn is kept by the filters, and no kept id has a greater perturbed score."""
    logits = torch.randn(V) * 3
    key, position = int(rng.integers(1 << 64, dtype=np.uint64)), int(rng.integers(1 << 32))
    scores = list(logits.numpy() / np.float32(filters[0]))

    drawn = draw(logits, filters, key, position)

    perturbed = {i: float(scores[i]) + noise(i, key, position) for i in kept_ids(scores, filters)}
    assert drawn in perturbed
    assert perturbed[drawn] >= max(perturbed.values()) - 1e-4


@pytest.mark.parametrize("filters", [(2.0, 0.3, 0, 1.0), (2.0, 0.0, 5, 1.0), (2.0, 0.0, 0, 0.7), (2.0, 0.1, 9, 0.8)])
def test_exactly_the_kept_ids_can_be_drawn(filters: tuple[float, ...]) -> None:
    """Over many positions every id that passes the filters comes up, and none that does not."""
    logits = torch.linspace(3, 0, 16)[torch.randperm(16, generator=torch.Generator().manual_seed(1))]
    draws = 3000
    settings = torch.tensor([filters], dtype=torch.float64).expand(draws, 4)

    ids = sample(logits.expand(draws, 16).contiguous(), settings, torch.zeros(draws).long(), torch.arange(draws))

    assert set(ids.tolist()) == set(kept_ids(list(logits.numpy() / np.float32(filters[0])), filters))


def test_greedy_takes_the_lowest_of_equal_ids() -> None:
    """Temperature 0 is the first maximum, whatever the other settings and the seed are."""
    logits = torch.tensor([0.0, 2.0, 1.0, 2.0, 2.0])

    assert draw(logits, GREEDY) == draw(logits, (0.0, 0.5, 3, 0.1), key=9) == 1


def test_equal_scores_are_kept_by_lowest_id() -> None:
    """top_k = 2 among four equal scores keeps the ids 0 and 1; −0 equals +0."""
    logits = torch.tensor([0.0, -0.0, 0.0, 0.0])

    assert {draw(logits, (1.0, 0.0, 2, 1.0), position=position) for position in range(50)} == {0, 1}


def test_frequencies_follow_the_softmax() -> None:
    """Over many positions the ids come as often as their probabilities say."""
    probabilities = [0.5, 0.25, 0.15, 0.07, 0.03]
    draws = 8000
    rows = torch.tensor(probabilities).log().expand(draws, 5).contiguous()
    settings = torch.tensor([PLAIN], dtype=torch.float64).expand(draws, 4)

    ids = sample(rows, settings, torch.full((draws,), 42), torch.arange(draws))

    frequencies = torch.bincount(ids, minlength=5) / draws
    torch.testing.assert_close(frequencies, torch.tensor(probabilities), rtol=0, atol=0.02)


def test_a_draw_depends_on_its_row_key_and_position_alone(rng: np.random.Generator) -> None:
    """Rows drawn together equal rows drawn alone; another key or position draws other ids."""
    logits = torch.randn(64, 101)
    keys, positions = torch.arange(64), torch.arange(64) * 3
    settings = torch.tensor([PLAIN], dtype=torch.float64).expand(64, 4)

    together = sample(logits, settings, keys, positions).tolist()

    assert together == [draw(logits[row], PLAIN, row, row * 3) for row in range(64)]
    assert together != sample(logits, settings, keys + 1, positions).tolist()
    assert together != sample(logits, settings, keys, positions + 1).tolist()
