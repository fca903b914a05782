"""Brokers shared by the integration tests, one of its own for a test that kills it, and whole pipelines."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from deploy.index_functions import load_once
from tests.fakes.collector import Collector, collector
from tests.integration.gateway_stage import Stack, gateway_stage
from tests.integration.pipeline import Pipeline, pipeline
from tests.integration.servers import NatsServer, ValkeyServer, free_port


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A broker for the whole session: tests use subjects and streams of their own."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A broker that the test may kill, or whose streams it may fill."""
    server = NatsServer(tmp_path)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
async def valkey_server(tmp_path: Path) -> AsyncIterator[ValkeyServer]:
    """A Valkey of the test's own with the function library loaded."""
    server = ValkeyServer(tmp_path)
    try:
        await load_once(server.url, server.passwords["supervisor"])
        yield server
    finally:
        server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_pipeline(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pipeline]:
    """One for all tests of a module; these run in the module's event loop."""
    async with pipeline(tmp_path_factory.mktemp("pipeline")) as running:
        running.start_worker(step_s=0.02)
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared_pipeline: Pipeline) -> AsyncIterator[Pipeline]:
    """A pipeline with one worker, at rest before and after the test, with every connection as it should be."""
    await shared_pipeline.ready()
    yield shared_pipeline
    for way in shared_pipeline.to_nats.values():
        way.heal()
    shared_pipeline.to_scheduler.heal()
    await shared_pipeline.quiet()


@pytest.fixture
def unused_port() -> int:
    """A loopback port on which nobody listens."""
    return free_port()


@pytest.fixture
def traces() -> Iterator[Collector]:
    """Where the gateway's spans go."""
    with collector() as running:
        yield running


@pytest.fixture
async def stack(own_nats_server: NatsServer, traces: Collector, tmp_path: Path) -> AsyncIterator[Stack]:
    """A gateway process before a backend that the test plays."""
    async with gateway_stage(own_nats_server, traces, tmp_path) as running:
        yield running
