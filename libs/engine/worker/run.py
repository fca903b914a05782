"""The life of a worker process: settings, broker, engine, then serving until it is told to stop."""

import asyncio
import contextlib
import gc
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from libs.contracts.messages import ServiceStatus
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.link_client import CellLeader
from libs.engine.worker.pool_source import mark_pool_use, pool_source
from libs.engine.worker.serve import Loaded, Role, Worker
from libs.runtime import failpoints
from libs.runtime.bus import Bus
from libs.runtime.config import describe, load_config
from libs.runtime.logs import get_logger, setup_logs
from libs.runtime.metrics import ProcessFacts, process_metrics, serve_metrics
from libs.runtime.process import stop_signal
from libs.runtime.ring import open_ring
from libs.runtime.status import serve_status
from libs.runtime.telemetry import telemetry

C = TypeVar("C", bound=WorkerConfig)
Loader = Callable[[WorkerConfig, Callable[[int, int], None]], Loaded]

log = get_logger("worker")


class GivenUp(Exception):
    """The process was told to stop while it loaded."""


class Life:
    """How far this process has come, for `status`."""

    def __init__(self, config: WorkerConfig, role: Role) -> None:
        self._config, self._role = config, role
        self.worker: Worker | None = None
        self.is_unwanted = threading.Event()
        self._loaded = "loading"

    def note_progress(self, done: int, total: int) -> None:
        """Called while loading, from its thread. Raises GivenUp when the process was told to stop."""
        if self.is_unwanted.is_set():
            raise GivenUp
        self._loaded = f"loading, {done} of {total} layers"
        log.debug("loading", done=done, total=total)

    def status(self) -> ServiceStatus:
        attached = self.worker is not None and self.worker.link.is_attached
        detail = self._loaded if self.worker is None else "attached" if attached else "waiting for a scheduler"
        return ServiceStatus(self._role.service, self._config.instance, os.getpid(), 0, attached, detail)


async def run_worker(kind: type[C], role: Role, load: Loader | None = None) -> None:
    """Everything a worker service's main does; `load` is that of libs/engine/worker/load.py unless given."""
    config = load_config(kind, prefix=f"HR_{role.service.upper()}_")
    if not config.incarnation:
        config = config.model_copy(update={"incarnation": secrets.token_hex(16)})
    setup_logs(config.log_level, config.log_format, service=role.service, instance=config.instance)
    failpoints.arm(config.failpoints, config.failpoints_file, config.instance)
    log.info("starting", **describe(config))
    life = Life(config, role)
    async with (
        stop_signal() as stop,
        telemetry(role.service, config.instance, config.otlp_endpoint) as export,
        open_ring(config.trace_dir, role.service, config.instance) as ring,
        Bus.connect(
            config.nats_url,
            service=role.service,
            user=config.nats_user,
            password=config.nats_password.get_secret_value(),
        ) as bus,
    ):
        await serve_status(bus, life.status, config.health_file)
        facts = ProcessFacts(role.service, config.instance, ring, export, bus=bus.counts)
        await serve_metrics(bus, process_metrics(facts))
        loaded = await _load(config, life, stop, load or _load_engine)
        if loaded is not None:
            leader = CellLeader(await bus.cells(), config.model, config.cell)
            mark_pool_use(pool_source(config.pool), config.incarnation)  # whoever is marked is soon to say Hello
            life.worker = Worker(config, role, loaded, bus, leader, ring)
            await life.worker.profiler.serve(bus)
            await life.worker.run(stop, config.drain_s)
    log.info("stopped")


def _load_engine(config: WorkerConfig, progress: Callable[[int, int], None]) -> Loaded:
    from libs.engine.worker.load import load  # torch takes seconds to import; the process answers meanwhile

    return load(config, progress)


async def _load(config: WorkerConfig, life: Life, stop: asyncio.Event, load: Loader) -> Loaded | None:
    """The engine, or None when the process is told to stop first.

    The thread that loads ends with it: OpenMP keeps a team for every thread that computed, and with more threads than
    cores the team of the step thread would no longer spin between the operations of a step.
    """
    loader = ThreadPoolExecutor(1, thread_name_prefix="load")
    loading = asyncio.get_running_loop().run_in_executor(loader, load, config, life.note_progress)
    loader.shutdown(wait=False)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        life.is_unwanted.set()
        with contextlib.suppress(GivenUp):
            await loading
        return None
    loaded = await loading
    gc.freeze()  # weights and modules live as long as the process: no collection needs to walk them
    log.info("loaded", pool=loaded.pool_name, blocks=loaded.pool_blocks, numerics_class=loaded.numerics_class)
    return loaded
