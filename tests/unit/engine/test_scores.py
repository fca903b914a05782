"""Log-probabilities of a prompt's ids and of the likeliest in their place, by every engine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.native.levels import supported_levels
from libs.contracts.messages import PromptScores, SamplingParams
from libs.engine.adjustment import Adjustment
from libs.engine.rows import Sampled, SampleSpec, StepRow
from tests.engines import opened, settled
from tests.fakes.oracle import Cache, Oracle
from tests.unit.engine.tiny_model import write_model

PROMPT = [(7 * i + 3) % 127 for i in range(75)]  # more than are scored together, twice
TABLE = [5, 9, 2, 11, 7]
TOPS = 4
DRAW = SampleSpec(SamplingParams(temperature=0, logprobs=TOPS), 0, 0, ())


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(params=("torch", *supported_levels()))
def engine(request: pytest.FixtureRequest, model_dir: Path) -> Any:
    return opened(settled(request.param), model_dir, "float32", blocks=16, block_tokens=16).engine


def scored(engine: Any, *chunks: int) -> list[PromptScores]:
    """The prompt in chunks of these lengths, the last one with a draw; scores of each."""
    found, base = [], 0
    for length in chunks:
        ids, end = PROMPT[base : base + length], base + length
        sample = DRAW if end == len(PROMPT) else None
        (result,) = engine.step([StepRow(ids, base, TABLE, sample, (), PROMPT[base + 1 : end + 1], TOPS)])
        assert isinstance(result, Sampled) and (result.token_id >= 0) == (sample is not None)
        if result.scores is not None:  # nothing follows the prompt's last id
            found.append(result.scores)
        base = end
    return found


def test_scores_are_those_of_the_definition(engine: Any, model_dir: Path) -> None:
    """Log-softmax, rank and the best ids of the logits before each id, against a plain model in float64."""
    oracle = Oracle(model_dir)
    (scores,) = scored(engine, len(PROMPT))

    assert (scores.first, len(scores.logprobs)) == (1, len(PROMPT) - 1)
    for i in range(1, len(PROMPT)):
        logprobs = torch.log_softmax(oracle.logits(PROMPT[:i], Cache()).double(), 0)
        best = [int(x) for x in logprobs.argsort(descending=True)[:TOPS]]
        at = slice(TOPS * (i - 1), TOPS * i)
        assert scores.logprobs[i - 1] == pytest.approx(float(logprobs[PROMPT[i]]), abs=1e-4)
        assert scores.ranks[i - 1] == 1 + int((logprobs > logprobs[PROMPT[i]]).sum())
        assert list(scores.top_ids[at]) == best
        assert list(scores.top_logprobs[at]) == pytest.approx([float(logprobs[x]) for x in best], abs=1e-4)


def test_chunks_tell_the_parts_of_one_piece(engine: Any) -> None:
    """Also a chunk of one token; with native kernels to the bit."""
    (whole,) = scored(engine, len(PROMPT))
    parts = scored(engine, 33, 1, 40, 1)

    assert [part.first for part in parts] == [1, 34, 35]
    assert [rank for part in parts for rank in part.ranks] == list(whole.ranks)
    joined = [x for part in parts for x in (*part.logprobs, *part.top_logprobs)]
    pieces = [(part.first - 1, part.first - 1 + len(part.logprobs)) for part in parts]
    expected = [x for a, b in pieces for x in (*whole.logprobs[a:b], *whole.top_logprobs[TOPS * a : TOPS * b])]
    assert joined == (pytest.approx(expected, abs=1e-4) if _is_torch(engine) else expected)


def test_neighbours_do_not_show(engine: Any) -> None:
    """A plain row beside a scored one draws as alone, and the scored one as without scores."""
    plain = StepRow(PROMPT[:20], 0, [12, 13], DRAW)
    asked = StepRow(PROMPT, 0, TABLE, DRAW, (), PROMPT[1:], 0)
    first, second = engine.step([asked, plain])

    assert _ids(engine.step([plain])[0]) == _ids(second)
    assert _ids(engine.step([replace(asked, scored_ids=())])[0]) == _ids(first)
    assert second.scores is None and first.scores.top_ids == ()


def test_the_likeliest_beside_a_drawn_token_are_of_the_raw_logits(engine: Any, model_dir: Path) -> None:
    """Whatever is banned or biased: the token's own log-probability too."""
    logprobs = torch.log_softmax(Oracle(model_dir).logits(PROMPT, Cache()).double(), 0)
    best = [int(i) for i in logprobs.argsort(descending=True)[:TOPS]]
    how = Adjustment(repetition=2.0)
    (drawn,) = engine.step([StepRow(PROMPT, 0, TABLE, replace(DRAW, banned_ids=(best[0],), adjustment=how))])

    assert drawn.token_id == best[1] and list(drawn.top_ids) == best
    assert [drawn.logprob, *drawn.top_logprobs] == pytest.approx(
        [float(logprobs[i]) for i in (best[1], *best)], abs=1e-4
    )


def test_a_row_that_is_not_finite_has_no_scores(engine: Any) -> None:
    """Nor does it draw or publish."""
    engine.step([StepRow(PROMPT[:20], 0, TABLE[:2], None)])
    pool = engine.pool.blocks_NB if hasattr(engine.pool, "blocks_NB") else engine.pool.kv_NLCHTD.numpy()
    pool.reshape(-1).view("uint8")[:] = 0xFF  # NaN
    (result,) = engine.step([StepRow(PROMPT[20:40], 20, TABLE, None, (), PROMPT[21:41], TOPS)])

    assert result == Sampled(-1, None, True)


def _ids(sampled: Sampled) -> tuple[int, ...]:
    return sampled.token_id, *sampled.top_ids


def _is_torch(engine: Any) -> bool:
    return not hasattr(engine.pool, "blocks_NB")
