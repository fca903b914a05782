"""Every family of models and kind of rotary positions, on torch and native kernels, against another library's ids."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from kernels.native.levels import supported_levels
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import SamplingParams
from libs.engine.rows import SampleSpec, StepRow
from tests.engines import opened, settled
from tests.golden.family_models import CASES, NEW_TOKENS, PROMPT_TOKENS, prompt, tensors

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "families_float32.json").read_text())
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)
CHUNK_TOKENS = 70
LONGEST = max(PROMPT_TOKENS) + NEW_TOKENS


@pytest.fixture(params=("torch", *supported_levels()))
def kernels(request: pytest.FixtureRequest) -> str:
    return settled(request.param)


def generate(engine: Any, ids: list[int]) -> list[int]:
    """Greedy ids after a prompt that is computed in chunks, then token by token."""
    known, base = list(ids), 0
    blocks = list(range(blocks_for(LONGEST, 16)))[::-1]
    while len(known) < len(ids) + NEW_TOKENS:
        n = min(CHUNK_TOKENS, len(known) - base)
        sample = SampleSpec(GREEDY, len(known) - len(ids), 0, ()) if base + n == len(known) else None
        (drawn,) = engine.step([StepRow(known[base : base + n], base, blocks, sample)])
        base += n
        if drawn is not None:
            known.append(drawn.token_id)
    return known[len(ids) :]


@pytest.mark.parametrize(
    ("case", "golden"), list(zip(CASES, GOLDEN["cases"], strict=True)), ids=lambda of: getattr(of, "name", "")
)
def test_ids_are_the_other_librarys(tmp_path: Path, kernels: str, case: Any, golden: dict[str, Any]) -> None:
    """In float32, over prompts within a piece of attention and beyond one, whatever the family."""
    assert case.name == golden["name"]
    seed = golden["seed"]
    save_file(tensors(case, seed), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(case.full_config))
    engine = opened(kernels, tmp_path, blocks=blocks_for(LONGEST, 16), wanted_tokens=case.wanted_tokens).engine

    for tokens, expected in zip(PROMPT_TOKENS, golden["output_ids"], strict=True):
        assert generate(engine, prompt(tokens, seed)) == expected
