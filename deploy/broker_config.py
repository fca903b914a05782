"""Texts of the brokers' configuration files: who may connect, and what each may do there. Pure.

Needs the standard library alone: `deploy.secrets` runs with any Python.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from libs.contracts import flow
from libs.runtime.prefix_library import MEMORY_SETTINGS, acl_lines

MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024
MAX_STORE_BYTES: Final = 1024 * 1024 * 1024
MAX_CONNECTIONS: Final = 256


def nats_config(listen: str, store_dir: Path, passwords: Mapping[str, str]) -> str:
    """For a NATS server at `host:port`, one user per service. JSON is valid in NATS's format, and quotes as needed."""
    users = [
        {
            "user": service,
            "password": password,
            "permissions": {
                "publish": {"allow": list(flow.permissions(service).publish)},
                "subscribe": {"allow": list(flow.permissions(service).subscribe)},
            },
        }
        for service, password in passwords.items()
    ]
    return json.dumps(
        {
            "listen": listen,
            "server_name": "headrace",
            "max_payload": MAX_PAYLOAD_BYTES,
            "max_connections": MAX_CONNECTIONS,
            "jetstream": {"store_dir": str(store_dir), "max_file_store": MAX_STORE_BYTES},
            "authorization": {"users": users},
        },
        indent=1,
    )


def valkey_on_socket(socket_path: Path) -> tuple[str, ...]:
    """Reached through a socket by its owner alone."""
    return "port 0", f'unixsocket "{socket_path}"', "unixsocketperm 700"


def valkey_on_port(port: int) -> tuple[str, ...]:
    """Reached by whoever is in its network and shows a password: no user is without."""
    return f"port {port}", "bind * -::*", "protected-mode no"


def valkey_config(listening: tuple[str, ...], directory: Path, passwords: Mapping[str, str]) -> str:
    """For a Valkey server that listens so: no persistence, no user but those of the prefix index."""
    lines = (*listening, f'dir "{directory}"', 'save ""', "appendonly no", *MEMORY_SETTINGS, *acl_lines(passwords))
    return "\n".join(lines) + "\n"
