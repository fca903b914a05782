"""What eight bits cost: the perplexity of a fixed text in the classes of integers, beside that of bfloat16."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cli.models import cache_root
from libs.contracts.kv_layout import blocks_for
from libs.engine.gguf_convert import ensure_default_model
from libs.engine.rows import StepRow
from libs.text.tokenizer import Tokenizer
from tests.engines import opened, settled

pytestmark = [pytest.mark.e2e, pytest.mark.whole, pytest.mark.timeout(600)]

TEXT = Path(__file__).with_name("perplexity.txt")
BLOCK_TOKENS = 16
ROWS = 64  # of a step: positions of the one sequence, each a row of its own, so that each has logits
WORST = {"int8": 1.03, "int8w": 1.005}  # times that of bfloat16


@pytest.fixture(scope="module")
def ids() -> list[int]:
    ids = Tokenizer.from_dir(ensure_default_model(cache_root())).encode(
        TEXT.read_text(encoding="utf-8"), add_special_tokens=True
    )
    assert len(ids) >= 1000
    return ids


def perplexity(dtype: str, ids: list[int]) -> float:
    """exp of the mean of −log p over every token but the first."""
    blocks = blocks_for(len(ids), BLOCK_TOKENS)
    engine = opened(
        settled("native"),
        ensure_default_model(cache_root()),
        dtype,
        blocks=blocks,
        threads=2,
        packed_dir=cache_root() / "packed",
    ).engine
    losses = []
    for first in range(0, len(ids) - 1, ROWS):
        span = range(first, min(first + ROWS, len(ids) - 1))
        logits_RV = engine.logits([StepRow([ids[i]], i, range(blocks), None) for i in span])
        losses.append(surprises(logits_RV, [ids[i + 1] for i in span]))
    return float(np.exp(np.concatenate(losses).mean()))


def surprises(logits_RV: npt.NDArray[np.float32], targets: list[int]) -> npt.NDArray[np.float64]:
    x_RV = logits_RV.astype(np.float64)
    top_R1 = x_RV.max(axis=1, keepdims=True)
    sums_R = np.log(np.exp(x_RV - top_R1).sum(axis=1)) + top_R1[:, 0]
    out: npt.NDArray[np.float64] = sums_R - x_RV[np.arange(len(targets)), targets]
    return out


def test_eight_bits_cost_little(ids: list[int]) -> None:
    """Weights alone: within half a per cent of bfloat16; inputs, too: within three."""
    reference = perplexity("bfloat16", ids)
    ratios = {dtype: perplexity(dtype, ids) / reference for dtype in WORST}

    print(f"perplexity of {len(ids)} tokens in bfloat16 {reference:.3f}; times that: {ratios}")
    assert all(abs(ratios[dtype] - 1) <= WORST[dtype] - 1 for dtype in WORST), ratios
