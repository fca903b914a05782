"""Several draws from the logits of one row, and the likeliest ids that may follow it, by every engine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.native.levels import supported_levels
from libs.contracts.messages import SamplingParams
from libs.engine.rows import Sampled, SampleSpec, StepRow
from tests.engines import opened, settled
from tests.fakes.oracle import Cache, Oracle
from tests.unit.engine.tiny_model import write_model

PROMPT = [(7 * i + 3) % 127 for i in range(40)]
TABLE = [5, 9, 2]
PLAIN = SampleSpec(SamplingParams(seed=(1 << 64) - 2, logprobs=0), 0, 0, ())


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(params=("torch", *supported_levels()))
def engine(request: pytest.FixtureRequest, model_dir: Path) -> Any:
    return opened(settled(request.param), model_dir, "float32", blocks=16, block_tokens=16).engine


def drawn(engine: Any, sample: SampleSpec, *forks: SampleSpec) -> Sampled:
    """What the prompt's last token yields."""
    (sampled,) = engine.step([StepRow(PROMPT, 0, TABLE, sample, forks)])
    assert isinstance(sampled, Sampled)
    return sampled


@pytest.mark.parametrize("params", [SamplingParams(seed=3), SamplingParams(seed=3, top_k=9, top_p=0.9, logprobs=0)])
def test_a_fork_draws_what_it_would_draw_alone(engine: Any, params: SamplingParams) -> None:
    """Same logits, its own key: token and log-probability are those of the same request with its choice."""
    specs = [SampleSpec(params, 0, choice, (choice,)) for choice in range(5)]
    alone = [drawn(engine, spec) for spec in specs]

    together = drawn(engine, specs[4], *specs[:4])

    assert [*together.forks, replace(together, forks=())] == alone
    assert len({sampled.token_id for sampled in alone}) > 1


def test_forks_beside_other_rows_are_each_row_s_own(engine: Any) -> None:
    """Rows with and without forks, and one that draws nothing, answer in order."""
    specs = [replace(PLAIN, choice=choice) for choice in range(3)]
    rows = [
        StepRow(PROMPT, 0, TABLE, specs[0], tuple(specs[1:])),
        StepRow(PROMPT[:7], 0, [11], None),
        StepRow(PROMPT[:20], 0, [12, 13], specs[1], (specs[2],)),
    ]

    first, silent, last = engine.step(rows)

    assert silent is None and (len(first.forks), len(last.forks)) == (2, 1)
    assert _ids(first) == _ids(drawn(engine, *specs))
    assert _ids(last) == _ids(engine.step(rows[2:])[0])


def _ids(sampled: Sampled) -> list[int]:
    """Without log-probabilities: not every engine has them the same in every batch."""
    return [one.token_id for one in (sampled, *sampled.forks)]


def test_a_row_that_is_not_finite_has_no_fork_that_is(engine: Any) -> None:
    """The notice is everybody's."""
    engine.step([StepRow(PROMPT[:20], 0, TABLE[:2], None)])
    pool = engine.pool.blocks_NB if hasattr(engine.pool, "blocks_NB") else engine.pool.kv_NLCHTD.numpy()
    pool.reshape(-1).view("uint8")[:] = 0xFF  # NaN
    (sampled,) = engine.step([StepRow(PROMPT[20:], 20, TABLE, PLAIN, (PLAIN, PLAIN))])

    nan = Sampled(-1, None, True)
    assert sampled == replace(nan, forks=(nan, nan))


def test_candidates_are_the_likeliest_that_are_not_banned(engine: Any, model_dir: Path) -> None:
    """Best first, with their log-probabilities under all of the raw logits; more than there are is all there are."""
    oracle = Oracle(model_dir)
    logprobs = torch.log_softmax(oracle.logits(PROMPT, Cache()).double(), 0)
    best = [int(i) for i in logprobs.argsort(descending=True)]
    banned = (best[0], best[3])
    left = [i for i in best if i not in banned]

    some = drawn(engine, replace(PLAIN, banned_ids=banned, candidates=6)).candidates
    most = drawn(engine, replace(PLAIN, banned_ids=banned, candidates=1000)).candidates

    assert [one.token_id for one in some] == left[:6] and most[:6] == some
    assert sorted(one.token_id for one in most) == sorted(left)
    assert [one.logprob for one in most] == pytest.approx([float(logprobs[i.token_id]) for i in most], abs=1e-4)
    assert list(most) == sorted(most, key=lambda one: (-one.logprob, one.token_id))
