"""Runs the gRPC listeners: the public one, and one on loopback that also tells what there is (reflection)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from libs.contracts.errors import ConfigError
from libs.runtime.logs import get_logger
from services.gateway.config import Config

ADMIN_HOST = "127.0.0.1"
KEEP_ALIVE_MS, KEEP_ALIVE_TIMEOUT_MS = 10_000, 10_000  # finds a client that left no trace
STOP_GRACE_S = 0.5
WATCH_S = 0.5  # how often somebody who watches is looked after
METADATA_BYTES_MAX = 16 << 10

HealthCheck = health_pb2.HealthCheckRequest
HealthStatus = health_pb2.HealthCheckResponse

log = get_logger("gateway")


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # generated, and without types
    """grpc.health.v1: SERVING while `obstacle` is empty, for the whole server ("") and each of its services."""

    def __init__(self, services: Iterable[str], obstacle: Callable[[], str]) -> None:
        self._services, self._obstacle = {"", *services}, obstacle

    async def Check(self, request: Any, context: Any) -> Any:  # named by the service's definition
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return HealthStatus(status=self._status(request.service))

    async def Watch(self, request: Any, context: Any) -> AsyncGenerator[Any, None]:
        """A status at once, then each change of it, until the client ends the call."""
        told = None
        while True:
            if (status := self._status(request.service)) != told:
                yield HealthStatus(status=status)
                told = status
            await asyncio.sleep(WATCH_S)

    def _status(self, service: str) -> Any:
        if service not in self._services:
            return HealthStatus.SERVICE_UNKNOWN
        return HealthStatus.NOT_SERVING if self._obstacle() else HealthStatus.SERVING


@asynccontextmanager
async def serving_rpc(
    handler: "grpc.GenericRpcHandler[Any, Any]", service: str, obstacle: Callable[[], str], config: Config
) -> AsyncIterator[tuple[int, int]]:
    """The listeners that are set, until the block ends: the ports of the public and the admin one, 0 for none.

    Raises ConfigError when a port cannot be had.
    """
    started: list[grpc.aio.Server] = []
    try:
        ports = []
        for host, port, is_admin in (
            (config.host, config.grpc_port, False),
            (ADMIN_HOST, config.grpc_admin_port, True),
        ):
            if port is None:
                ports.append(0)
                continue
            server = _server(config)
            server.add_generic_rpc_handlers((handler,))
            health_pb2_grpc.add_HealthServicer_to_server(Health([service], obstacle), server)
            if is_admin:
                reflection.enable_server_reflection((service, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
            ports.append(_bind(server, host, port))
            await server.start()
            started.append(server)
            log.info("serving_grpc", host=host, port=ports[-1], reflection=is_admin)
        yield ports[0], ports[1]
    finally:
        await asyncio.gather(*(server.stop(STOP_GRACE_S) for server in started))


def _server(config: Config) -> grpc.aio.Server:
    return grpc.aio.server(
        maximum_concurrent_rpcs=config.max_connections,
        options=(
            ("grpc.max_receive_message_length", config.max_body_bytes),
            ("grpc.max_metadata_size", METADATA_BYTES_MAX),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_time_ms", KEEP_ALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEP_ALIVE_TIMEOUT_MS),
        ),
    )


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    """Raises ConfigError."""
    try:
        return int(server.add_insecure_port(f"{f'[{host}]' if ':' in host else host}:{port}"))
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {host} port {port} for gRPC") from error
