"""Draws the secrets of a stack in containers, one file each, once: `python3 -m deploy.secrets DIR`.

The folder is its owner's alone. A file in it can be read by every user: in a container, where it is mounted by itself,
a service is another one. Needs the standard library alone.
"""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.broker_config import nats_config, valkey_config, valkey_on_port
from libs.contracts.flow import PERMISSIONS
from libs.runtime.prefix_library import USERS

NATS_PORT: Final = 4222
VALKEY_PORT: Final = 6379
STORE: Final = Path("/store")
FOLDER: Final = Path(__file__).with_name(".secrets")


def draw() -> dict[str, str]:
    """File name → content, all drawn anew."""
    nats = {user: secrets.token_urlsafe(24) for user in PERMISSIONS}
    index = {user: secrets.token_urlsafe(24) for user in USERS}
    return {
        **{f"nats_{user}": password for user, password in nats.items()},
        **{f"index_{user}": password for user, password in index.items()},
        "nats.conf": nats_config(f"0.0.0.0:{NATS_PORT}", STORE, nats),
        "valkey.conf": valkey_config(valkey_on_port(VALKEY_PORT), Path("/tmp"), index),
        "link_token": secrets.token_urlsafe(24),
        "hash_key": secrets.token_hex(32),
        "api_key": f"sk-{secrets.token_urlsafe(24)}",
    }


def write(folder: Path, contents: Mapping[str, str]) -> None:
    """Raises FileExistsError where the folder is there: nobody's secrets are overwritten."""
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    scratch.mkdir(mode=0o700, parents=True)
    for name, content in contents.items():
        (scratch / name).write_text(content, encoding="utf-8")
        (scratch / name).chmod(0o644)
    if folder.exists():
        raise FileExistsError(folder)
    scratch.rename(folder)


def main(folder: Path) -> None:
    if folder.exists():
        sys.stdout.write(f"{folder} is there\n")
        return
    write(folder, draw())
    sys.stdout.write(f"drew the secrets of a stack: {folder}; clients show what {folder / 'api_key'} holds\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
