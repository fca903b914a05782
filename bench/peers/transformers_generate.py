"""Plain `transformers generate`: what a user has without a server, behind the smallest HTTP server that streams."""

import os
from pathlib import Path
from typing import Final

from bench.peers.environment import make_environment, pip
from bench.servers import Launch

PACKAGES: Final = ("torch==2.13.0", "transformers==5.24.0")


def install(folder: Path) -> None:
    binaries = make_environment(folder)
    for package in PACKAGES:  # torch first and alone: no range of another package may choose another build of it
        pip(binaries, "install", package)


def launch(folder: Path, model_dir: Path) -> Launch:
    server = Path(__file__).with_name("generate_server.py")
    command = (str(folder / "bin" / "python"), str(server), str(model_dir), "{port}")
    environ = {"OMP_NUM_THREADS": str(os.cpu_count() or 1), "HF_HUB_OFFLINE": "1"}
    return Launch("transformers", command, model_dir.name, environ, start_s=120)
