"""The engine alone, in this process: one sequence, a pool of its own. The limit that the services are held to."""

from collections.abc import Iterator
from pathlib import Path

from cli.models import cache_root
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import SamplingParams
from libs.engine.engine_spec import EngineSpec, Private
from libs.engine.kernel_choice import settle_kernels
from libs.engine.model_config import load_model_config
from libs.engine.opening import open_engine
from libs.engine.rows import SampleSpec, StepRow

BLOCK_TOKENS = 16
MAX_TOKENS = 2048
GREEDY = SamplingParams(temperature=0.0)


class LocalEngine:
    """`kernels` as for `headrace up`; weights are those that its workers map."""

    def __init__(self, model_dir: Path, dtype: str, threads: int = 2, kernels: str = "auto") -> None:
        self.kernels = settle_kernels(kernels)
        spec = EngineSpec(
            kernels=self.kernels,
            model_path=model_dir,
            dtype=dtype,
            threads=threads,
            block_tokens=BLOCK_TOKENS,
            packed_dir=cache_root() / "packed",
        )
        memory = Private(blocks_for(MAX_TOKENS, BLOCK_TOKENS))
        opened = open_engine(spec, load_model_config(model_dir), memory, lambda done, total: None)
        self._engine = opened.engine

    def generate(self, prompt_ids: list[int], new_tokens: int, chunk_tokens: int = 512) -> Iterator[int]:
        """Greedy ids, each as soon as its step ends; the prompt in chunks as the scheduler cuts them."""
        table = range(blocks_for(len(prompt_ids) + new_tokens, BLOCK_TOKENS))
        ids, cursor = list(prompt_ids), 0
        while len(ids) < len(prompt_ids) + new_tokens:
            end = min(cursor + chunk_tokens, len(ids))
            spec = SampleSpec(GREEDY, len(ids) - len(prompt_ids), 0, ()) if end == len(ids) else None
            (sampled,) = self._engine.step([StepRow(ids[cursor:end], cursor, table, spec)])
            cursor = end
            if sampled is not None:
                ids.append(sampled.token_id)
                yield sampled.token_id
