"""A worker process from its settings to its end."""

import asyncio
import threading

from libs.engine.worker import run
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.run import Life
from libs.engine.worker.serve import Loaded, Role
from tests.fakes.engine import FakeEngine, FakePool, fake_loaded

ROLE = Role("decode_worker", "decode", "decode_worker.decode")


async def test_the_thread_that_loads_ends_with_loading() -> None:
    """A thread that stayed would keep its OpenMP team, and every step would pay for more threads than cores."""
    loaders = []

    def load(config: WorkerConfig, progress: object) -> Loaded:
        loaders.append(threading.current_thread())
        pool = FakePool(4)
        return fake_loaded(pool, FakeEngine(pool))

    config = WorkerConfig(model="m", model_dir="d", pool="fd:3", link_token="t")  # type: ignore[arg-type]

    await run._load(config, Life(config, ROLE), asyncio.Event(), load)

    loaders[0].join(timeout=5)
    assert not loaders[0].is_alive()
