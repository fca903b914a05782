"""The other processes of the model: the services' own parts, wired as their mains wire them."""

import asyncio
import types
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

from pydantic import SecretStr

from libs.contracts import codec, flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import Gone, Incarnations, Kill, Request, Resident
from libs.contracts.messages import Sequence as WireSequence
from libs.contracts.trace_records import Tokenized
from libs.runtime.prefix_index import PrefixIndex
from services.gateway.crowd import Crowd
from services.gateway.hub import Hub
from services.gateway.intake import listening
from services.gateway.metrics import Metrics as GatewayMetrics
from services.gateway.outbox import Outbox as GatewayOutbox
from services.gateway.stream import ClientGone, Stream
from services.gateway.terms import Terms
from services.scheduler.config import Config
from services.scheduler.events import AckRequest
from services.scheduler.loop import Clock as LoopClock
from services.scheduler.loop import Loop
from services.scheduler.reign import Reign
from services.scheduler.rpc import Links
from services.scheduler.state import State
from services.tokenizer.choose import open_cells
from services.tokenizer.loop import Tokenizing
from services.tokenizer.prepare import TERM_PATIENCE_S, Prepared, Preparing
from tests.model.broker import Broker
from tests.model.client import Client, Directory
from tests.model.demand import CELL, MODEL, TIMEOUT_S, Call, serve, stream_of
from tests.model.process import Clock, Process
from tests.model.worker import HOST

WAITING_MAX = 1024


class _Steady(LoopClock):
    """The scheduler's clock; wall time and the loops' time are one here."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._offset_s = clock, 0.0

    def now_s(self) -> float:
        return self._offset_s + self._clock.now_s


class _NoIndex:
    async def apply(self, cell: str, term: int, stored: Sequence[bytes], evicted: Sequence[bytes]) -> None:
        """Hints for placement across cells; there is one cell."""


class Scheduler(Process):
    """`ended` are the requests that it acknowledged, and why."""

    def __init__(self, number: int, clock: Clock, broker: Broker, role: str) -> None:
        super().__init__(f"scheduler-{number}", clock)
        self.port = number
        self.state: State | None = None  # None until it has a term
        self.ended: list[tuple[str, str]] = []
        self._client = Client(broker, self)
        self._config = Config(
            instance=self.name,
            model=MODEL,
            cell=CELL,
            link_token=SecretStr("t"),
            role=cast(Any, role),
            disaggregate_min_tokens=30,
            max_chunk_tokens=32,
            max_running=6,
        )
        self._loop = Loop(_Steady(clock))
        self.links = Links(self._loop.post)
        self.start(self._serve())

    @property
    def address(self) -> str:
        return f"{self._config.link_host}:{self.port}"

    async def _serve(self) -> None:
        index = cast(PrefixIndex, _NoIndex())
        reign = await Reign.begin(
            self._config, self.port, self._client.as_bus(), index, loop=self._loop, links=self.links
        )
        reign.carriers = {**reign.carriers, AckRequest: self._noting(reign.carriers[AckRequest])}
        self.reign, self.state = reign, reign.state
        await reign.run(until=asyncio.Event())

    def _noting(self, acknowledge: Callable[[Any], None]) -> Callable[[Any], None]:
        def carry(command: AckRequest) -> None:
            self.ended.append((command.request_id, command.reason))
            acknowledge(command)

        return carry


class Gateway(Process):
    def __init__(self, number: int, clock: Clock, broker: Broker) -> None:
        super().__init__(f"gateway-{number}", clock)
        self._client = Client(broker, self)
        self.metrics = GatewayMetrics(MODEL)
        self.outbox = outbox = GatewayOutbox(
            self._client.as_bus(),
            self.name,
            Terms(cast(Any, self._client.directory()), (MODEL,)),
            patience_s=TIMEOUT_S,
            unix_s=lambda: self.clock.now_s,
        )
        self.hub = Hub(outbox, self.metrics, Crowd(max_waiting=WAITING_MAX, max_wait_s=TIMEOUT_S, short_queue=0))
        self.streams: dict[str, Stream] = {}
        self.start(self._serve())

    def submit(self, call: Call) -> None:
        async def handle() -> None:
            stream = self.streams[call.request_id] = stream_of(call, self.metrics, self.clock.now_s)
            await serve(call, stream, self.hub)

        self.call(lambda: self.loop.create_task(handle()))

    def abandon(self, request_id: str) -> None:
        """Its client has left."""

        async def handle() -> None:
            self.hub.abandon(self.streams[request_id], ClientGone())

        self.call(lambda: self.loop.create_task(handle()))

    def listens_to(self, resident: Resident) -> bool:
        """Whether it takes anything of this attempt, or of one that is to fork from it."""
        stream = self.hub._streams.get(resident.request_id)
        attempts = [(resident.choice, resident.epoch), *((fork.choice, fork.epoch) for fork in resident.forks)]
        known = stream.choices if stream is not None else ()
        return any(choice < len(known) and known[choice].epoch <= epoch for choice, epoch in attempts)

    async def _serve(self) -> None:
        async with self.hub.running(), listening(self._client.as_bus(), self.name, self.hub):
            await asyncio.Event().wait()


class Tokenizer(Process):
    def __init__(self, number: int, clock: Clock, broker: Broker) -> None:
        super().__init__(f"tokenizer-{number}", clock)
        self._client = Client(broker, self)
        self.start(self._serve())

    async def _serve(self) -> None:
        preparing = _Preparing(await self._client.cells())
        tokenizing = Tokenizing(self._client.as_bus(), cast(Preparing, preparing))
        await tokenizing.run(until=asyncio.Event(), drain_s=1.0)


class _Preparing:
    """Prompts come as ids."""

    def __init__(self, cells: Directory) -> None:
        self._cells = cells
        self.encoder = types.SimpleNamespace(model=MODEL)

    async def prepare(self, request: Request, prompt_bytes: int, stored_at: datetime, record: Tokenized) -> Prepared:
        try:
            async with asyncio.timeout(TERM_PATIENCE_S):
                while not (cells := open_cells(self._cells.get(MODEL))):
                    await self._cells.changed.wait()
        except TimeoutError as error:
            raise Unavailable("no cell serves the model at the moment") from error
        sequence = WireSequence(
            request_id=request.request_id,
            epoch=request.epoch,
            gateway=request.gateway,
            model=request.model,
            tenant=request.tenant,
            ids=request.prompt.ids,
            block_hashes=(),
            params=request.params,
            choices=request.choices,
            deadline_unix_ms=request.deadline_unix_ms,
            priority=request.priority,
            is_timed=request.is_timed,
        )
        return Prepared(sequence, CELL, cells[0].term, 0)


class Host(Process):
    """The agent that ends worker processes; it never dies here. `condemned` is who has to go: incarnation → its end."""

    def __init__(self, clock: Clock, broker: Broker, incarnations: Callable[[], tuple[str, ...]]) -> None:
        super().__init__(HOST, clock)
        self._client, self._incarnations = Client(broker, self), incarnations
        self.condemned: dict[str, list[asyncio.Future[None]]] = {}
        self.start(self._serve())

    async def _serve(self) -> None:
        await self._client.serve(flow.host_subject(HOST), self._answer)
        await asyncio.Event().wait()

    async def _answer(self, payload: bytes, traceparent: str) -> bytes:
        message = codec.decode_in("HostMessage", payload)
        if not isinstance(message, Kill):
            return codec.encode_in("HostReply", Incarnations(self._incarnations()))
        end: asyncio.Future[None] = self.loop.create_future()
        self.condemned.setdefault(message.incarnation, []).append(end)
        await end
        return codec.encode_in("HostReply", Gone(message.incarnation))
