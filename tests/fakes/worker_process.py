"""The fake engine in a real worker process: settings, link, frames, step thread and shared pool are the real ones.

It starts in a fraction of a second, for nothing here needs torch. A step takes STEP_S and costs almost nothing, and its
tokens are those of tests/fakes/engine.py: a function of every id that it reads back from the pool.
"""

import time
from collections.abc import Callable, Sequence

from libs.contracts.kv_layout import KvLayout
from libs.engine.rows import Sampled, StepRow
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.pool_source import pool_name, pool_source
from libs.engine.worker.serve import Loaded
from libs.runtime.logs import get_logger
from tests.fakes.engine import EOS_IDS, MODEL_DIGEST, NUMERICS_CLASS, VOCAB_SIZE, draw
from tests.fakes.shared_pool import SharedPool, SharedTier

STEP_S = 0.01
TOKEN_S = 0.0001
LAYOUT = KvLayout(layers=1, kv_heads=1, head_dim=2, block_tokens=16, dtype="float32")
MAX_MODEL_LEN = 2048
CORRUPTION = "pool_corruption"  # the event that a checker of logs looks for

log = get_logger("fake_engine")


class SharedEngine:
    """Deterministic; reports what it finds wrong in the pool and goes on, so that a client sees it, too."""

    def __init__(self, pool: SharedPool) -> None:
        self._pool = pool

    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        for row in rows:
            self._pool.check_filled(row.block_table, row.base)
            self._pool.write(row.block_table, row.base, row.token_ids)
        time.sleep(STEP_S + TOKEN_S * sum(len(row.token_ids) for row in rows))
        for row in rows:
            self._pool.publish(row.block_table, row.base, len(row.token_ids))
        return [self._sample(row) for row in rows]

    def _sample(self, row: StepRow) -> Sampled | None:
        ids = self._pool.read(row.block_table, row.base + len(row.token_ids))
        return None if row.sample is None else draw(ids, row.sample)


def load_fake(config: WorkerConfig, progress: Callable[[int, int], None]) -> Loaded:
    """What libs/engine/worker/load.py does for a model."""
    progress(1, 1)
    source = pool_source(config.pool)
    assert isinstance(source, int), "a supervisor passes the pool as a descriptor"
    pool = SharedPool(source, LAYOUT, lambda what: log.error(CORRUPTION, what=what))
    tier_source = pool_source(config.host_pool) if config.host_pool else None
    tier = SharedTier(tier_source, pool) if isinstance(tier_source, int) else None
    return Loaded(
        engine=SharedEngine(pool),
        pool=pool,
        pool_name=pool_name(config.host, source),
        pool_blocks=pool.blocks,
        layout=LAYOUT,
        eos_ids=EOS_IDS,
        vocab_size=VOCAB_SIZE,
        max_model_len=config.max_model_len or MAX_MODEL_LEN,
        model_digest=MODEL_DIGEST,
        numerics_class=NUMERICS_CLASS,
        tier=tier,
        tier_name=pool_name(config.host, tier_source) if tier_source is not None else "",
    )
