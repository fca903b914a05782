"""Runs steps: writes the KV of a ragged batch, publishes what is committed, draws tokens.

Knows nothing of requests, orders or blocks' owners: rows come with their block tables and parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import torch

from libs.contracts.errors import ConfigError
from libs.contracts.messages import PromptScores, SamplingParams
from libs.engine.model import Model
from libs.engine.model_config import ModelConfig
from libs.engine.pool import TORCH_DTYPES, KvPool
from libs.engine.rows import Sampled, SampleSpec, StepRow
from libs.engine.sampling import draw
from libs.engine.scoring import score_row
from libs.engine.step import build_batch
from libs.engine.tensors import Progress
from libs.engine.weights import load_weights

__all__ = ["Engine", "SampleSpec", "Sampled", "StepRow"]

WARM_UP_TOKENS: Final = 33
NOT_FINITE: Final = Sampled(token_id=-1, logprob=None, is_nan=True)
NOTHING_DRAWN: Final = Sampled(token_id=-1, logprob=None, is_nan=False)


class Engine:
    """One model over one pool, single-threaded towards its caller; torch uses threads inside a step."""

    def __init__(self, model: Model, pool: KvPool) -> None:
        self.model = model
        self.pool = pool

    @classmethod
    def load(
        cls,
        model_path: Path,
        config: ModelConfig,
        pool: KvPool,
        *,
        dtype: str,
        threads: int,
        progress: Progress | None = None,
    ) -> Self:
        """Load a model for an attached pool and warm up: the first real step then runs at full speed.

        Args:
            model_path: directory in Hugging Face form, or a .gguf file.
            config: what it holds.
            pool: its layout must be the model's, its dtype equal to `dtype`.
            dtype: "float32" or "bfloat16".
            threads: torch threads of this process, this one included.
            progress: called with (layers loaded, layers in all).

        Raises: ConfigError.
        """
        if dtype not in TORCH_DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(TORCH_DTYPES)}, not {dtype!r}")
        if pool.layout != config.kv_layout(pool.layout.block_tokens, dtype):
            raise ConfigError(f"the KV pool {pool.layout} does not fit model {model_path} in {dtype}")
        torch.set_num_threads(threads)
        engine = cls(Model(config, load_weights(model_path, config, TORCH_DTYPES[dtype], progress)), pool)
        engine.warm_up()
        return engine

    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        """Advance every row once; results are in the order of the rows.

        KV is written for all rows, then fill counts are published, then tokens are drawn. A row whose hidden states or
        logits are not finite publishes nothing and answers `is_nan`, whether or not it was to draw. A row without
        `sample` answers None. Rows whose base is not committed (`KvPool.is_committed`) must not be passed.
        """
        return self._step(rows, self.pool)

    @torch.inference_mode()
    def logits(self, rows: Sequence[StepRow]) -> torch.Tensor:
        """Like `step`, but returns the raw logits [R, V] float32 of each row's last token instead of drawing."""
        batch = build_batch(rows, self.pool.kv_NLCHTD, self.model.windows)
        x_MK = self.model.forward(batch, self.pool.kv_NLCHTD)
        logits_RV = self.model.logits(x_MK.index_select(0, batch.last_R))
        _publish(rows, _finite_rows(x_MK, batch.starts_R) & _finite(logits_RV), self.pool)
        return logits_RV

    def warm_up(self) -> None:
        """Run a chunk and a decode row over blocks of its own: loads the libraries' kernels, touches every weight."""
        layout = self.pool.layout
        blocks = -(-WARM_UP_TOKENS // layout.block_tokens)
        spec = SampleSpec(SamplingParams(), position=0, choice=0, banned_ids=())
        chunk = StepRow([0] * (WARM_UP_TOKENS - 1), 0, range(blocks), spec)
        single = StepRow([0], 0, [blocks], spec)
        scratch = KvPool.private(layout, blocks + 1)
        self._step([chunk, single], scratch)
        self._step([StepRow([0], WARM_UP_TOKENS - 1, range(blocks), spec)], scratch)

    @torch.inference_mode()
    def _step(self, rows: Sequence[StepRow], pool: KvPool) -> list[Sampled | None]:
        batch = build_batch(rows, pool.kv_NLCHTD, self.model.windows)
        x_MK = self.model.forward(batch, pool.kv_NLCHTD)
        finite_R = _finite_rows(x_MK, batch.starts_R)
        scores = self._score(x_MK, rows, batch.starts_R, finite_R)
        drawing = [index for index, row in enumerate(rows) if row.sample is not None and finite_R[index]]
        results: list[Sampled | None] = [
            None if finite else replace(NOT_FINITE, forks=(NOT_FINITE,) * len(row.forks))
            for row, finite in zip(rows, finite_R, strict=True)
        ]
        if not drawing:
            _publish(rows, finite_R, pool)
            return _with_scores(results, scores)
        logits_RV = self.model.logits(x_MK.index_select(0, batch.last_R[drawing]))
        logits_finite = _finite(logits_RV)
        finite_R[drawing] = logits_finite
        _publish(rows, finite_R, pool)
        for index, drawn in zip(drawing, _draw_finite(logits_RV, logits_finite, rows, drawing), strict=True):
            results[index] = drawn
        return _with_scores(results, scores)

    def _score(
        self,
        x_MK: torch.Tensor,
        rows: Sequence[StepRow],
        starts_R: npt.NDArray[np.int64],
        finite_R: npt.NDArray[np.bool_],
    ) -> dict[int, PromptScores]:
        """By row, where asked for; rows whose logits are not finite are marked as such."""
        scores = {}
        for index, row in enumerate(rows):
            if row.scored_ids and finite_R[index]:
                found = score_row(self.model.logits, x_MK[starts_R[index] :][: len(row.token_ids)], row)
                finite_R[index] = found is not None
                if found is not None:
                    scores[index] = found
        return scores


def _draw_finite(
    logits_RV: torch.Tensor, finite_R: npt.NDArray[np.bool_], rows: Sequence[StepRow], drawing: Sequence[int]
) -> list[Sampled]:
    """Draw from the finite rows among those that draw; the others answer NOT_FINITE."""
    kept = [(at, rows[index]) for at, index in enumerate(drawing) if finite_R[at]]
    specs = [spec for _, row in kept for spec in _specs(row)]
    heads = torch.tensor([at for at, row in kept for _ in _specs(row)], dtype=torch.int64)
    drawn = iter(draw(logits_RV[heads], specs) if specs else ())
    results = []
    for index, is_finite in zip(drawing, finite_R, strict=True):
        row = rows[index]
        first, *forks = [next(drawn) if is_finite else NOT_FINITE for _ in _specs(row)]
        results.append(replace(first, forks=tuple(forks)) if forks else first)
    return results


def _with_scores(results: list[Sampled | None], scores: Mapping[int, PromptScores]) -> list[Sampled | None]:
    for index, found in scores.items():
        result = results[index] or NOTHING_DRAWN
        results[index] = result if result.is_nan else replace(result, scores=found)
    return results


def _specs(row: StepRow) -> tuple[SampleSpec, ...]:
    return () if row.sample is None else (row.sample, *row.forks)


def _publish(rows: Sequence[StepRow], finite_R: npt.NDArray[np.bool_], pool: KvPool) -> None:
    for row, finite in zip(rows, finite_R, strict=True):
        if finite:
            pool.publish(row.block_table, row.base, len(row.token_ids))


def _finite_rows(x_MK: torch.Tensor, starts_R: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether all tokens of each row are finite."""
    finite_R: npt.NDArray[np.bool_] = np.logical_and.reduceat(_finite(x_MK), starts_R)
    return finite_R


def _finite(x_MK: torch.Tensor) -> npt.NDArray[np.bool_]:
    """Whether each token is finite: a sum is, unless a term is not (or terms pass 10³⁰, which no sound model's do)."""
    finite_M: npt.NDArray[np.bool_] = x_MK.sum(dim=1).isfinite().numpy()
    return finite_M
