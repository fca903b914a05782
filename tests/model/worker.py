"""A worker process of the model: the real link, reports and step boundary; a test calls each part of a step."""

import asyncio
from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from libs.engine.rows import Sampled, StepRow
from libs.engine.worker.boundary import Boundary, Order, Word
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.held import Held
from libs.engine.worker.laps import Laps
from libs.engine.worker.link_client import CellLeader, SchedulerLink
from libs.engine.worker.reporter import Reporter
from libs.engine.worker.residences import Residences
from libs.engine.worker.residents import Residents
from libs.engine.worker.serve import Role, identity_of, limits_of
from libs.engine.worker.step_thread import Post
from libs.engine.worker.step_values import Step, Taken
from libs.runtime.link import LinkClient
from tests.fakes.engine import EOS_IDS, FakeEngine, FakePool, FakeTier, fake_loaded
from tests.model.broker import Broker
from tests.model.client import Client
from tests.model.demand import CELL, MODEL
from tests.model.process import Clock, Process

HOST = "host"
MAX_MODEL_LEN = 256
Dial = Callable[[Process, str], AbstractAsyncContextManager[LinkClient]]


class Worker(Process):
    def __init__(self, number: int, role: str, clock: Clock, broker: Broker, pool: FakePool, tier: FakeTier) -> None:
        super().__init__(f"{role}-{number}", clock)
        self.role, self.pool = role, pool
        self.incarnation = f"{number:032x}"
        self.under_way: Step | None = None
        self._client, self._engine = Client(broker, self), FakeEngine(pool)
        self.is_fenced: Callable[[Held], bool] = lambda held: False
        self._begun_ns = 0
        self._taken = (0, 0)  # term and version
        self._inbox: list[Order] = []
        self._posts: asyncio.Queue[Post] = asyncio.Queue()
        config = WorkerConfig(
            instance=self.name,
            model=MODEL,
            cell=CELL,
            model_dir=Path(),
            pool="model",
            link_token=SecretStr("t"),
            host=HOST,
            incarnation=self.incarnation,
        )
        self._span = f"{role}_worker.{role}"
        self._loaded = fake_loaded(pool, self._engine, max_model_len=MAX_MODEL_LEN, tier=tier)
        identity = identity_of(config, Role(f"{role}_worker", cast(Any, role), self._span), self._loaded)
        self.residents = Residents(
            identity,
            eos_ids=EOS_IDS,
            vocab_size=self._loaded.vocab_size,
            block_tokens=pool.block_tokens,
            fill_counts=pool.fill_counts_N,
        )
        self._boundary = Boundary(self.residents, self, pool, self._post, Laps(lambda: self._begun_ns), tier)

    def attach(self, dial: Dial) -> None:
        self.start(self._serve(dial))

    @property
    def held(self) -> list[Held]:
        return list(self.residents._held.values())

    def begin(self, *, blindly: bool = False) -> bool:
        """A boundary, up to its step; a thread that was frozen in its middle sees nothing of what has arrived."""
        assert self.under_way is None
        self._begun_ns = int(self.clock.now_s * 1e9)
        if not blindly:
            inbox, self._inbox = self._inbox, []
            self._boundary.receive(inbox)
        has_taken = self._boundary.take()
        self.under_way = self._boundary.rows()
        return has_taken or self.under_way is not None

    def finish(self) -> None:
        """The step that was begun is computed now, and reported."""
        under_way = self.under_way
        assert under_way is not None
        for held, row in zip(under_way.held, under_way.rows, strict=True):
            written = self.pool.read(held.table, row.base)
            assert written == array("I", held.ids[: row.base]), f"{self.name} reads blocks of somebody else"
        self._boundary.step(under_way)
        self.under_way = None

    def step_blindly(self) -> None:
        """A thread that thaws: it ends its step, or takes one with what it has."""
        if self.under_way is None:
            self.begin(blindly=True)
        if self.under_way is not None:
            self.finish()

    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        """The engine; its time is that of the model. What a fenced attempt draws is wrong: nobody may take it."""
        assert self.under_way is not None
        self._begun_ns = int(self.clock.now_s * 1e9)
        samples = self._engine.step(rows)
        return [
            _garbled(sampled) if sampled and self.is_fenced(held) else sampled
            for sampled, held in zip(samples, self.under_way.held, strict=True)
        ]

    def _post(self, word: Word) -> None:
        if isinstance(word, Taken):
            taken = (word.began.term, word.began.version)
            assert taken > self._taken, f"{self.name} takes {taken} after {self._taken}"
            self._taken = taken
        self.call(self._posts.put_nowait, word)

    async def _serve(self, dial: Dial) -> None:
        loaded = self._loaded
        leader = CellLeader(cast(Any, await self._client.cells()), MODEL, CELL)
        limits = limits_of(loaded)
        link = SchedulerLink(
            leader,
            token="t",
            limits=limits,
            to_steps=lambda order: self._inbox.append(order),
            dial=lambda address, token: dial(self, address),
        )
        self.link = link
        bus = self._client.as_bus()
        reporter = Reporter(self._posts, bus, link, Residences(self._span), cell=CELL)
        parts = [asyncio.ensure_future(part) for part in (reporter.run(), link.run())]
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()


def _garbled(sampled: Sampled) -> Sampled:
    return replace(sampled, token_id=sampled.token_id ^ 1, forks=tuple(map(_garbled, sampled.forks)))
