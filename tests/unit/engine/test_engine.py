"""The engines over a tiny random Llama, against the plain generator."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from kernels.native.levels import supported_levels
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import SamplingParams
from libs.engine.rows import Sampled, SampleSpec, StepRow
from tests.engines import Load, opened, settled
from tests.fakes.oracle import Cache, Oracle
from tests.unit.engine.tiny_model import CONFIG, tiny_tensors, write_model

BLOCKS = 80
NAN_TOKEN = 130
PROMPT = [(7 * i + 3) % 127 for i in range(300)]  # longer than one attention piece


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def oracle(model_dir: Path) -> Oracle:
    return Oracle(model_dir)


@pytest.fixture(params=("torch", *supported_levels()))
def load(request: pytest.FixtureRequest) -> Load:
    kernels = settled(request.param)

    def load(model_dir: Path, dtype: str = "float32", block_tokens: int = 16) -> Any:
        return opened(kernels, model_dir, dtype, blocks=BLOCKS, block_tokens=block_tokens).engine

    return load


def as_tensor(logits: Any) -> torch.Tensor:
    return torch.as_tensor(logits)


def block_bytes(engine: Any) -> npt.NDArray[np.uint8]:
    """All bytes of an engine's pool, to read and to write."""
    blocks = engine.pool.blocks_NB if hasattr(engine.pool, "blocks_NB") else engine.pool.kv_NLCHTD.numpy()
    flat: npt.NDArray[np.uint8] = blocks.reshape(-1).view(np.uint8)
    return flat


def table(engine: Any, tokens: int, first: int = 0) -> list[int]:
    """Scattered blocks for this many tokens; tables of different `first` share none."""
    return [(first + 7 * i) % BLOCKS for i in range(blocks_for(tokens, engine.pool.layout.block_tokens))]


def spec(position: int = 0, choice: int = 0, banned: tuple[int, ...] = (), **params: Any) -> SampleSpec:
    return SampleSpec(SamplingParams(**({"temperature": 0.0} | params)), position, choice, banned)


def generate(engine: Any, prompt: Sequence[int], tokens: int, chunk: int = 64, **params: Any) -> list[int]:
    """Prefill in chunks, then decode alone."""
    blocks = table(engine, len(prompt) + tokens)
    ids = list(prompt)
    base = 0
    while len(ids) < len(prompt) + tokens:
        n = min(chunk, len(ids) - base)
        sample = spec(len(ids) - len(prompt), **params) if base + n == len(ids) else None
        (drawn,) = engine.step([StepRow(ids[base : base + n], base, blocks, sample)])
        base += n
        if drawn is not None:
            ids.append(drawn.token_id)
    return ids[len(prompt) :]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("block_tokens", [16, 32, 64])
def test_logits_are_the_oracles(load: Load, model_dir: Path, dtype: str, tolerance: float, block_tokens: int) -> None:
    """Paged and chunked, in both classes and all block sizes, the logits are those of a plain forward pass."""
    engine = load(model_dir, dtype, block_tokens)
    blocks = table(engine, len(PROMPT))
    engine.step([StepRow(PROMPT[:270], 0, blocks, None)])

    logits = as_tensor(engine.logits([StepRow(PROMPT[270:], 270, blocks, None)])[0])

    expected = Oracle(model_dir, dtype).logits(PROMPT, Cache())
    assert torch.linalg.vector_norm(logits - expected) < tolerance * torch.linalg.vector_norm(expected)


@pytest.mark.parametrize("changes", [{"tie_word_embeddings": False}, {"attention_bias": True, "mlp_bias": True}])
def test_other_llamas_too(load: Load, tmp_path: Path, changes: dict[str, Any]) -> None:
    """An untied head and biases on every projection."""
    model_dir = write_model(tmp_path / "model", **changes)
    engine = load(model_dir)

    logits = as_tensor(engine.logits([StepRow(PROMPT[:20], 0, table(engine, 20), None)])[0])

    torch.testing.assert_close(logits, Oracle(model_dir).logits(PROMPT[:20], Cache()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}])
def test_rows_without_a_token_are_never_drawn(load: Load, tmp_path: Path, changes: dict[str, Any]) -> None:
    """A matrix padded beyond the tokenizer's ids has no logits there, however great they would be."""
    model_dir = write_model(tmp_path / "model", **changes)
    tokens = {"model": {"vocab": {f"t{i}": i for i in range(100)}}}
    (model_dir / "tokenizer.json").write_text(json.dumps(tokens))

    logits = as_tensor(load(model_dir).logits([StepRow([29, 99], 0, [0], None)])[0])

    expected = Oracle(model_dir).logits([29, 99], Cache())
    assert expected.argmax() >= 100, "the test needs a row that would win"
    torch.testing.assert_close(logits, expected[:100], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 16, 50, 300])
def test_greedy_generation_is_the_oracles(load: Load, model_dir: Path, oracle: Oracle, chunk: int) -> None:
    """Whatever the chunk size, the ids are those of the plain generator."""
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)

    assert generate(load(model_dir), PROMPT, 8, chunk) == oracle.generate(PROMPT, params)


@pytest.mark.parametrize("settings", [{}, {"top_k": 20, "top_p": 0.8}, {"min_p": 0.02}])
def test_seeded_generation_is_the_oracles(
    load: Load, model_dir: Path, oracle: Oracle, settings: dict[str, Any]
) -> None:
    """Sampling with a seed draws the tokens that the contract names, and so the same ones again."""
    settings = {"temperature": 0.8, "seed": 1234, **settings}
    engine = load(model_dir)

    ids = generate(engine, PROMPT[:40], 24, **settings)

    assert ids == oracle.generate(PROMPT[:40], SamplingParams(max_tokens=24, ignore_eos=True, **settings))
    assert ids == generate(engine, PROMPT[:40], 24, **settings)
    assert ids != generate(engine, PROMPT[:40], 24, **(settings | {"seed": 1235}))


def test_a_ragged_step_gives_each_row_its_own(load: Load, model_dir: Path) -> None:
    """Decode rows, a first chunk and a later chunk in one step draw what each draws alone."""
    engine, alone = load(model_dir), load(model_dir)
    prompts = [PROMPT[:3], PROMPT[5:40], PROMPT[:290], PROMPT[50:90]]
    tables = [table(engine, len(prompt), first) for first, prompt in enumerate(prompts)]
    bases = [2, 0, 289, 20]
    for prompt, blocks, base in zip(prompts, tables, bases, strict=True):
        if base:
            engine.step([StepRow(prompt[:base], 0, blocks, None)])
    rows = [
        StepRow(prompt[base:], base, blocks, spec(temperature=1.0, seed=9, choice=i, logprobs=0))
        for i, (prompt, blocks, base) in enumerate(zip(prompts, tables, bases, strict=True))
    ]

    together = engine.step(rows)

    for i, (prompt, drawn) in enumerate(zip(prompts, together, strict=True)):
        whole = StepRow(prompt, 0, tables[0] + list(range(40, 70)), spec(temperature=1.0, seed=9, choice=i, logprobs=0))
        (expected,) = alone.step([whole])
        assert drawn is not None and expected is not None
        assert drawn.token_id == expected.token_id
        assert drawn.logprob == pytest.approx(expected.logprob, abs=1e-4)


def test_choice_i_equals_the_request_alone_with_seed_plus_i(load: Load, model_dir: Path) -> None:
    """The key is (seed + choice) mod 2⁶⁴."""
    engine = load(model_dir)
    engine.step([StepRow(PROMPT[:19], 0, table(engine, 20), None)])

    def drawn(seed: int, choice: int) -> list[Sampled | None]:
        specs = (spec(p, choice, temperature=1.0, seed=seed) for p in range(20))
        return [engine.step([StepRow(PROMPT[19:20], 19, table(engine, 20), s)])[0] for s in specs]

    assert drawn(5, 2) == drawn(7, 0)
    assert drawn((1 << 64) - 1, 1) == drawn(0, 0)


def test_logprobs_come_only_when_asked_and_are_those_of_the_raw_logits(
    load: Load, model_dir: Path, oracle: Oracle
) -> None:
    """Neither temperature nor a ban changes them."""
    engine = load(model_dir)
    blocks, expected = table(engine, 20), oracle.logits(PROMPT[:20], Cache()).log_softmax(-1)
    best = int(expected.argmax())

    (silent,) = engine.step([StepRow(PROMPT[:20], 0, blocks, spec())])
    (banned,) = engine.step([StepRow(PROMPT[19:20], 19, blocks, spec(temperature=0.5, banned=(best,), logprobs=0))])

    assert silent == Sampled(best, None, False)
    assert banned is not None and banned.token_id != best
    assert banned.logprob == pytest.approx(float(expected[banned.token_id]), abs=1e-4)


def test_fill_counts_follow_the_step(load: Load, model_dir: Path) -> None:
    """After a step exactly the tokens it wrote are committed, for rows that draw and rows that do not."""
    engine = load(model_dir)
    first, second = [5, 9], [1]

    engine.step([StepRow(PROMPT[:20], 0, first, None), StepRow(PROMPT[:3], 0, second, spec())])
    engine.step([StepRow(PROMPT[20:21], 20, first, spec())])

    counts = engine.pool.fill_counts_N
    assert (counts[5], counts[9], counts[1], counts.sum()) == (16, 5, 3, 24)


def test_loading_writes_no_block(load: Load, model_dir: Path) -> None:
    """Warming up leaves a pool with other workers' blocks alone."""
    engine = load(model_dir)

    assert not block_bytes(engine).any()
    assert engine.pool.fill_counts_N.sum() == 0


def test_stale_blocks_do_not_matter(load: Load, model_dir: Path) -> None:
    """NaN left in granted blocks by an earlier owner reaches no result."""
    clean, stale = load(model_dir), load(model_dir)
    block_bytes(stale)[:] = 0xFF  # NaN in both types

    assert generate(clean, PROMPT[:30], 6) == generate(stale, PROMPT[:30], 6)


@pytest.fixture
def broken_engine(load: Load, tmp_path: Path) -> Any:
    """A model in which one token's embedding is NaN; its head is untied and finite."""
    tensors = tiny_tensors(CONFIG | {"tie_word_embeddings": False})
    tensors["model.embed_tokens.weight"][NAN_TOKEN] = torch.nan
    return load(write_model(tmp_path / "model", tensors, tie_word_embeddings=False))


def test_a_row_that_is_not_finite_publishes_nothing(broken_engine: Any) -> None:
    """It says so whether it was to draw or not; its neighbours draw and publish as ever."""
    drawn = broken_engine.step(
        [
            StepRow([1, NAN_TOKEN, 2], 0, [0], spec(logprobs=0)),
            StepRow([1, 2, 3], 0, [1], spec()),
            StepRow([NAN_TOKEN], 0, [2], None),
        ]
    )

    assert drawn[0] == drawn[2] == Sampled(-1, None, True)
    assert drawn[1] is not None and not drawn[1].is_nan
    assert broken_engine.pool.fill_counts_N[:3].tolist() == [0, 3, 0]


def test_logits_that_are_not_finite_draw_nothing(load: Load, tmp_path: Path) -> None:
    """A head with a NaN row fails the rows that draw; a row that only commits never meets the head."""
    tensors = tiny_tensors(CONFIG | {"tie_word_embeddings": False})
    tensors["lm_head.weight"][5] = torch.nan
    engine = load(write_model(tmp_path / "model", tensors, tie_word_embeddings=False))

    drawn = engine.step([StepRow([1, 2], 0, [0], spec()), StepRow([1, 2], 0, [1], None)])

    assert drawn == [Sampled(-1, None, True), None]
    assert engine.pool.fill_counts_N[:2].tolist() == [0, 2]
