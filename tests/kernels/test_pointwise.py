"""swiglu and embedding against their definitions."""

import numpy as np
import pytest
import torch

from kernels.embedding import embedding
from kernels.swiglu import swiglu


@pytest.mark.parametrize(("M", "width"), [(1, 1), (1, 1536), (7, 33)])
def test_swiglu_gates_ups_by_the_silu_of_gates(rng: np.random.Generator, M: int, width: int) -> None:
    """The first half are gates, the second ups; large gates of either sign stay finite."""
    gates, ups = torch.randn(M, width) * 50, torch.randn(M, width)

    y = swiglu(torch.cat([gates, ups], dim=1))

    expected = gates.double() / (1 + torch.exp(-gates.double())) * ups.double()
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-6)


def test_embedding_copies_the_rows_of_its_ids(rng: np.random.Generator) -> None:
    """Rows come bit for bit, repeats included."""
    table = torch.randn(11, 5)

    assert torch.equal(embedding(torch.tensor([10, 0, 10]), table), torch.stack([table[10], table[0], table[10]]))


def test_embedding_refuses_ids_outside_the_vocabulary() -> None:
    """An id that no table row answers is an error, not a stray read."""
    with pytest.raises(IndexError):
        embedding(torch.tensor([4]), torch.zeros(4, 2))
