"""Brokers shared by the integration tests, and one of its own for a test that kills it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from libs.runtime.prefix_index import load_library
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
        await load_library(server.url, user="supervisor", password=server.passwords["supervisor"])
        yield server
    finally:
        server.stop()


@pytest.fixture
def unused_port() -> int:
    """A loopback port on which nobody listens."""
    return free_port()
