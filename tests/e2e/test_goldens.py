"""The engines against golden ids and logits that another library computed from the same weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cli.models import cache_root
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import SamplingParams
from libs.engine.gguf_convert import ensure_default_model
from libs.engine.rows import Sampled, SampleSpec, StepRow
from tests.engines import FAMILIES, opened, settled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GOLDEN_DIR = Path(__file__).parents[1] / "golden"
GREEDY = json.loads((GOLDEN_DIR / "greedy_float32.json").read_text(encoding="utf-8"))
LOGITS = load_file(GOLDEN_DIR / "logits_float32.safetensors")
BLOCK_TOKENS = 16
CHUNK_TOKENS = 200  # not a multiple of the block or of an attention piece
TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}


def cases_of(*dtypes: str) -> list[Any]:
    """The torch fallback takes minutes for all goldens, and has tests/kernels to stand by: that is left to --whole."""
    return [
        pytest.param((family, dtype), id=f"{family}-{dtype}", marks=[pytest.mark.whole] if (family == "torch") else [])
        for dtype in dtypes
        for family in FAMILIES
    ]


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Any:
    family, dtype = request.param
    kernels, model_dir = settled(family), ensure_default_model(cache_root())
    longest = max(len(prompt["prompt_ids"]) + len(prompt["output_ids"]) for prompt in GREEDY["prompts"])
    blocks = len(GREEDY["prompts"]) * blocks_for(longest, BLOCK_TOKENS)
    return opened(kernels, model_dir, dtype, blocks=blocks, threads=2, packed_dir=cache_root() / "packed").engine


def block_tables(prompts: list[dict[str, Any]]) -> list[range]:
    """A table of its own for each prompt."""
    tables, first = [], 0
    for prompt in prompts:
        used = blocks_for(len(prompt["prompt_ids"]) + len(prompt["output_ids"]), BLOCK_TOKENS)
        tables.append(range(first, first + used))
        first += used
    return tables


def greedy_spec(position: int) -> SampleSpec:
    return SampleSpec(SamplingParams(temperature=0.0), position, 0, ())


def prefill(engine: Any, ids: list[int], table: range) -> int:
    """Run a prompt in chunks and return the first token."""
    drawn: list[Sampled | None] = []
    for base in range(0, len(ids), CHUNK_TOKENS):
        last = base + CHUNK_TOKENS >= len(ids)
        row = StepRow(ids[base : base + CHUNK_TOKENS], base, table, greedy_spec(0) if last else None)
        drawn = engine.step([row])
    assert drawn[0] is not None
    return drawn[0].token_id


@pytest.mark.parametrize("engine", cases_of("float32"), indirect=True)
def test_greedy_ids_are_the_librarys(engine: Any) -> None:
    """Prompts prefilled in chunks and decoded together give the golden ids, where the golden gaps are wide enough."""
    prompts = GREEDY["prompts"]
    tables = block_tables(prompts)
    outputs = [[prefill(engine, p["prompt_ids"], table)] for p, table in zip(prompts, tables, strict=True)]

    for position in range(1, len(prompts[0]["output_ids"])):
        rows = [
            StepRow(out[-1:], len(p["prompt_ids"]) + position - 1, table, greedy_spec(position))
            for p, out, table in zip(prompts, outputs, tables, strict=True)
        ]
        for out, drawn in zip(outputs, engine.step(rows), strict=True):
            assert drawn is not None
            out.append(drawn.token_id)

    assert {p["name"]: p["output_ids"] for p in prompts} == {
        p["name"]: out for p, out in zip(prompts, outputs, strict=True)
    }


@pytest.mark.parametrize("engine", cases_of(*TOLERANCE), indirect=True)
def test_logits_are_the_librarys(engine: Any) -> None:
    """The recorded logits differ by less than the class's tolerance, relative to their norm."""
    prompts = {prompt["name"]: prompt for prompt in GREEDY["prompts"]}
    gaps = {}
    keys = sorted(key.removesuffix(".ids") for key in LOGITS if key.endswith(".ids"))
    for key in keys:
        name, step = key.rsplit(".", 1)
        ids = prompts[name]["prompt_ids"] + prompts[name]["output_ids"][: int(step)]
        table = range(blocks_for(len(ids), BLOCK_TOKENS))

        prefill(engine, ids[:-1], table)
        logits = torch.as_tensor(engine.logits([StepRow(ids[-1:], len(ids) - 1, table, None)])[0])

        golden, ours = LOGITS[f"{key}.logits"], logits[LOGITS[f"{key}.ids"].long()]
        gaps[key] = float(torch.linalg.vector_norm(ours - golden) / torch.linalg.vector_norm(golden))

    tolerance = TOLERANCE[engine.pool.layout.dtype]
    assert {key: gap for key, gap in gaps.items() if not gap < tolerance} == {}, gaps
