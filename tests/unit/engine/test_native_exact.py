"""The batch promise of the native kernels on a tiny random model, at every instruction level this machine runs."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.native.levels import supported_levels
from libs.contracts.kv_layout import blocks_for
from libs.engine.rows import StepRow
from tests.engines import opened, settled
from tests.unit.engine.tiny_model import write_model

PROMPT = [(7 * i + 3) % 127 for i in range(300)]  # longer than one attention piece
LENGTHS = (1, 5, 16, 33, 255, 257, 300)
BLOCKS = 150
DTYPES = ("float32", "bfloat16", "int8", "int8w")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the family with most of its own: norms of queries and keys, and a layer that sees a window."""
    return write_model(
        tmp_path_factory.mktemp("tiny") / "model",
        architectures=["Qwen3ForCausalLM"],
        use_sliding_window=True,
        sliding_window=70,
        max_window_layers=1,
    )


@pytest.fixture(params=supported_levels())
def level(request: pytest.FixtureRequest) -> str:
    return settled(request.param)


def engine(level: str, model_dir: Path, dtype: str, block_tokens: int = 16, threads: int = 1) -> Any:
    return opened(level, model_dir, dtype, blocks=BLOCKS, block_tokens=block_tokens, threads=threads).engine


def last_logits(engine: Any, chunk: int) -> dict[int, npt.NDArray[np.float32]]:
    """Of the first n tokens of the prompt, for each length n, alone: chunks first, then the last token by itself."""
    logits = {}
    for length in LENGTHS:
        table = range(blocks_for(length, engine.pool.layout.block_tokens))
        for base in range(0, length - 1, chunk):
            engine.step([StepRow(PROMPT[base : min(base + chunk, length - 1)], base, table, None)])
        logits[length] = engine.logits([StepRow(PROMPT[length - 1 : length], length - 1, table, None)])[0]
    return logits


def same(one: dict[int, npt.NDArray[np.float32]], other: dict[int, npt.NDArray[np.float32]]) -> dict[int, bool]:
    return {length: one[length].tobytes() == other[length].tobytes() for length in LENGTHS}


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_threads_and_blocks_change_no_bit(level: str, model_dir: Path, dtype: str) -> None:
    """Tokens one by one, in one piece, on three threads, in blocks of 64: the same logits."""
    plain = last_logits(engine(level, model_dir, dtype), 50)

    for other in (
        last_logits(engine(level, model_dir, dtype), 1),
        last_logits(engine(level, model_dir, dtype), 300),
        last_logits(engine(level, model_dir, dtype, threads=3), 50),
        last_logits(engine(level, model_dir, dtype, block_tokens=64), 17),
    ):
        assert all(same(plain, other).values()), same(plain, other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_company_changes_no_bit(level: str, model_dir: Path, dtype: str) -> None:
    """Whole prompts and last tokens of all lengths in one step give what each gives alone."""
    crowded = engine(level, model_dir, dtype, threads=2)
    alone = last_logits(crowded, 64)
    rows, first = [], 0
    for length in LENGTHS:
        for base in (0, length - 1):
            table = range(first, first + blocks_for(length, 16))
            first = table.stop
            if base:
                crowded.step([StepRow(PROMPT[:base], 0, table, None)])
            rows.append(StepRow(PROMPT[base:length], base, table, None))

    together = crowded.logits(rows)

    for which in (0, 1):
        assert all(same(alone, dict(zip(LENGTHS, together[which::2], strict=True))).values())
