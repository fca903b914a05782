"""Runs a loaded engine as a worker of its cell until it is told to stop."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from libs.contracts.kv_layout import KvLayout
from libs.contracts.messages import Hello
from libs.engine.op_times import OpTimes
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.grammars import WorkerGrammars
from libs.engine.worker.laps import Laps
from libs.engine.worker.link_client import CellLeader, SchedulerLink
from libs.engine.worker.order_check import OrderLimits
from libs.engine.worker.ports import BlockPool, HostTier, StepEngine
from libs.engine.worker.profiler import Profiler
from libs.engine.worker.reporter import Reporter
from libs.engine.worker.residences import Residences
from libs.engine.worker.residents import Residents
from libs.engine.worker.step_thread import Post, StepThread
from libs.runtime.bus import Bus
from libs.runtime.logs import get_logger
from libs.runtime.ring import OFF, Ring
from libs.structured.vocabulary import vocabulary_of

HAND_OVER_SHARE = 0.7  # of the time to drain; the rest is for what is unsent

log = get_logger("worker")


@dataclass(frozen=True, slots=True)
class Role:
    """What tells one worker service from the other."""

    service: str
    name: Literal["prefill", "decode"]
    span: str  # of one residence


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An engine ready to step, and what the cell must know of it."""

    engine: StepEngine
    pool: BlockPool
    pool_name: str  # the same in every process attached to this pool, and in no other
    pool_blocks: int
    layout: KvLayout
    eos_ids: tuple[int, ...]
    vocab_size: int
    max_model_len: int
    model_digest: str
    numerics_class: str
    op_times: OpTimes | None = None  # of the engine, where it counts them
    tier: HostTier | None = None
    tier_name: str = ""


class Worker:
    """One life of a worker: its step thread, its link, its reports."""

    def __init__(
        self, config: WorkerConfig, role: Role, loaded: Loaded, bus: Bus, leader: CellLeader, ring: Ring = OFF
    ) -> None:
        self._posts: asyncio.Queue[Post] = asyncio.Queue()
        identity = identity_of(config, role, loaded)
        self._incarnation = identity.incarnation
        vocabulary = partial(vocabulary_of, config.model_dir, loaded.eos_ids, loaded.vocab_size)
        self._grammars = WorkerGrammars(vocabulary, loaded.vocab_size, self._wake)
        residents = Residents(
            identity,
            eos_ids=loaded.eos_ids,
            vocab_size=loaded.vocab_size,
            block_tokens=loaded.layout.block_tokens,
            fill_counts=loaded.pool.fill_counts_N,
            grammars=self._grammars,
        )
        post = _poster(asyncio.get_running_loop(), self._posts)
        laps = Laps(time.monotonic_ns, loaded.op_times)
        self._steps = StepThread(residents, loaded.engine, loaded.pool, post, laps, loaded.tier)
        self.profiler = Profiler(identity.worker, self._steps, laps)
        limits = limits_of(loaded)
        token = config.link_token.get_secret_value()
        self.link = SchedulerLink(leader, token=token, limits=limits, to_steps=self._steps.send)
        self._reporter = Reporter(self._posts, bus, self.link, Residences(role.span, ring), cell=config.cell)

    async def run(self, until: asyncio.Event, drain_s: float) -> None:
        """Step and report until told to stop; then step on until others have what is here, and send what is unsent.

        All of that within `drain_s`.

        Raises LinkRefused, Fenced, or what ended the step thread.
        """
        self._steps.start()
        parts = [asyncio.ensure_future(part) for part in (self._reporter.run(), self.link.run(), until.wait())]
        try:
            await self._while_well(parts)
            end_s = asyncio.get_running_loop().time() + drain_s
            await self._leave(parts[:2], end_s)
            await self._flush(end_s)
        finally:
            self._steps.stop()
            self._grammars.close()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    def _wake(self) -> None:
        """A row that had to wait may advance."""
        self._steps.call(lambda: None)

    async def _while_well(self, parts: Sequence[asyncio.Future[Any]], timeout_s: float | None = None) -> None:
        """Until the first of `parts` ends; its error is raised."""
        done, _ = await asyncio.wait(parts, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()

    async def _leave(self, parts: Sequence[asyncio.Future[Any]], end_s: float) -> None:
        """Have the scheduler hand over what is here; without one the residents wait for the next worker."""
        self.link.leave(self._incarnation)
        vacant = asyncio.ensure_future(self._reporter.vacant.wait())
        try:
            left_s = (end_s - asyncio.get_running_loop().time()) * HAND_OVER_SHARE
            await self._while_well((*parts, vacant), left_s)
        finally:
            vacant.cancel()

    async def _flush(self, end_s: float) -> None:
        self._steps.stop()
        try:
            async with asyncio.timeout_at(end_s):
                await asyncio.to_thread(self._steps.join, max(0.0, end_s - asyncio.get_running_loop().time()))
                await self._posts.join()
                await self.link.finish()
        except TimeoutError:
            log.warning("drain_cut_short")


def identity_of(config: WorkerConfig, role: Role, loaded: Loaded) -> Hello:
    """The Hello of this life before it obeyed anybody."""
    return Hello(
        worker=config.instance,
        role=role.name,
        incarnation=config.incarnation or secrets.token_hex(16),
        host=config.host,
        term=0,
        version=0,
        pool=loaded.pool_name,
        pool_blocks=loaded.pool_blocks,
        block_tokens=loaded.layout.block_tokens,
        layout_fingerprint=loaded.layout.fingerprint,
        numerics_class=loaded.numerics_class,
        model_digest=loaded.model_digest,
        max_model_len=loaded.max_model_len,
        max_batch_tokens=config.max_batch_tokens,
        step_number=0,
        residents=(),
        host_pool=loaded.tier_name,
        host_blocks=loaded.tier.blocks if loaded.tier else 0,
    )


def limits_of(loaded: Loaded) -> OrderLimits:
    """What an order to this worker may name."""
    host_blocks = loaded.tier.blocks if loaded.tier else 0
    return OrderLimits(loaded.pool_blocks, loaded.layout.block_tokens, loaded.max_model_len, host_blocks)


def _poster(loop: asyncio.AbstractEventLoop, posts: asyncio.Queue[Post]) -> Callable[[Post], None]:
    """Brings a word of the step thread into the event loop."""

    def post(word: Post) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: a last step outlived the process's patience
            loop.call_soon_threadsafe(posts.put_nowait, word)

    return post
