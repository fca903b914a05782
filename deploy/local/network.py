"""TCP ports of this machine: which are free, and when somebody listens."""

import asyncio
import socket
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from libs.contracts.errors import ConfigError

CONNECT_INTERVAL_S: Final = 0.01


def usable_port(host: str, port: int) -> int:
    """`port`, or any free one for 0, that can be listened on now. Raises ConfigError when it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is usable
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


def free_port(besides: Collection[int] = ()) -> int:
    """A loopback port that nothing listens on now, and none of those that somebody is going to listen on."""
    while (port := usable_port("127.0.0.1", 0)) in besides:
        pass
    return port


async def wait_listening(port: int) -> None:
    """Return once something accepts connections on a loopback port; the caller limits the time."""
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(CONNECT_INTERVAL_S)
