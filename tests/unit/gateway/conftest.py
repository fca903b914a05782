"""A gateway without server and broker: the ASGI app over a fake bus, and a backend that the test plays."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from libs.contracts import codec
from libs.contracts.messages import Request
from libs.runtime.cells import CellDirectory
from libs.runtime.metrics import expose
from libs.runtime.quotas import Quotas
from libs.runtime.ring import Ring
from libs.runtime.valkey import Valkey
from services.gateway.app import create_app
from services.gateway.auth import Guard
from services.gateway.catalog import Catalog, Model
from services.gateway.charges import Charges
from services.gateway.crowd import Crowd
from services.gateway.door import Door
from services.gateway.hub import Hub
from services.gateway.intake import listening
from services.gateway.keys import Keys
from services.gateway.limits import Limits
from services.gateway.metrics import Metrics
from services.gateway.outbox import Outbox
from services.gateway.service import Service
from services.gateway.terms import Terms
from services.gateway.tokens import TokenizerClient, Tokens, tokenizer_info
from tests.fakes.bus import FakeBus
from tests.unit.gateway.asgi import App, Call
from tests.unit.gateway.backend import GATEWAY, MODEL, Backend, ByteTokenizer, cell_record

MAX_MODEL_LEN = 64
MAX_BODY_BYTES = 4096
REQUEST_TIMEOUT_S = 30.0
SAMPLE_KEY = "look at this one"
LIMITS = Limits(MODEL, MAX_MODEL_LEN, ByteTokenizer.vocab_size)


def catalog_of(limits: Limits) -> Catalog:
    """Of one model."""
    return Catalog([Model(limits, ByteTokenizer(), tokenizer_info({"eos_token": "<eos>"}, None, limits))])


CATALOG = catalog_of(LIMITS)


@dataclass(frozen=True, slots=True)
class Gateway:
    app: Guard
    service: Service
    bus: FakeBus
    backend: Backend

    def call(self, path: str, body: dict[str, Any] | bytes = b"", **options: Any) -> Call:
        payload = body if isinstance(body, bytes) else msgspec.json.encode({"model": MODEL, **body})
        return Call(cast(App, self.app), path, payload, **options)

    def chat(self, **fields: Any) -> Call:
        return self.call("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], **fields})

    def complete(self, **fields: Any) -> Call:
        return self.call("/v1/completions", {"prompt": "hi", **fields})

    async def taken(self) -> Request:
        """The next request from the queue."""
        return codec.decode(Request, (await self.bus.queue.get()).payload)

    def metric(self, name: str, **labels: str) -> float:
        return self.service.metrics.registry.get_sample_value(name, {"model_name": MODEL, **labels}) or 0.0


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """A keyless gateway with one cell whose scheduler answers."""
    async with running_gateway() as running:
        yield running


@asynccontextmanager
async def running_gateway(
    *,
    api_key: str = "",
    keys_path: Path | None = None,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    max_waiting: int = 64,
    catalog: Catalog = CATALOG,
) -> AsyncIterator[Gateway]:
    """As the fixture, for tests that need a key or other limits."""
    bus, keys = FakeBus(), Keys(api_key, keys_path)
    bus.directory.records.append(cell_record())
    terms = Terms(cast(CellDirectory, bus.directory), catalog.names)
    metrics, outbox = Metrics(MODEL), Outbox(bus.as_bus(), GATEWAY, terms, patience_s=request_timeout_s)
    hub = Hub(outbox, metrics, Crowd(max_waiting=max_waiting, max_wait_s=4.0, short_queue=16))
    service = Service(
        gateway=GATEWAY,
        door=Door(bus.as_bus(), cast(CellDirectory, bus.directory), outbox, catalog.names),
        hub=hub,
        metrics=metrics,
        catalog=catalog,
        max_body_bytes=MAX_BODY_BYTES,
        request_timeout_s=request_timeout_s,
        charges=Charges(Quotas(Valkey(None))),
        ring=Ring(lambda: None),
        sample_key=SAMPLE_KEY.encode(),
    )
    backend = Backend(bus.as_bus())
    await backend.start()
    async with hub.running(), listening(bus.as_bus(), GATEWAY, hub):
        service.door.open()

        async def scrape(openmetrics: bool) -> str:
            return expose(metrics.registry, openmetrics=openmetrics)

        tokens = Tokens(TokenizerClient(bus.as_bus()), catalog, max_body_bytes=MAX_BODY_BYTES)
        yield Gateway(create_app(service, scrape, keys, tokens), service, bus, backend)
        await outbox.settle(0)
