"""Installs the peers, each in an environment of its own: `python -m bench.peers.install [NAME …]`.

They lie under .peers/ at the root of the checkout, which git ignores. What is there already is left as it is; remove
its folder to install it again. The package index is pip's own configuration.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from bench.peers import llama_cpp, transformers_generate, vllm
from bench.servers import Launch
from libs.contracts.errors import ConfigError


class Peer(Protocol):
    """What each peer's module offers. `folder` is its own, below ROOT."""

    def install(self, folder: Path) -> None: ...

    def launch(self, folder: Path, model_dir: Path) -> Launch: ...


PEERS: Final[Mapping[str, Peer]] = {
    "llama.cpp": llama_cpp,
    "vllm": vllm,
    "transformers": transformers_generate,
}
# What there is to measure beside, and which peer's installation it runs.
LAUNCHES: Final[Mapping[str, tuple[str, Callable[[Path, Path], Launch]]]] = {
    **{name: (name, peer.launch) for name, peer in PEERS.items()},
    "llama.cpp-q8_0": ("llama.cpp", llama_cpp.launch_q8_0),
}
ROOT: Final = Path(__file__).parents[2] / ".peers"
DONE_FILE: Final = "installed"


def launch_peer(name: str, model_dir: Path) -> Launch:
    """How the peer serves the model. Raises ConfigError for one that is unknown or not installed."""
    if name not in LAUNCHES:
        raise ConfigError(f"no peer {name!r}; there are {', '.join(LAUNCHES)}")
    peer, launch = LAUNCHES[name]
    if not (ROOT / peer / DONE_FILE).exists():
        raise ConfigError(f"{peer} is not installed; `make peers` does it")
    return launch(ROOT / peer, model_dir)


def install(name: str) -> None:
    folder = ROOT / name
    if (folder / DONE_FILE).exists():
        return
    started_s = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    PEERS[name].install(folder)
    took_s = round(time.monotonic() - started_s)
    (folder / DONE_FILE).write_text(f"{took_s} s\n")
    print(f"{name}: installed in {took_s} s", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", choices=[*PEERS, []], metavar="NAME", help=f"of {', '.join(PEERS)}")
    for name in arguments.parse_args().names or PEERS:
        try:
            install(name)
        except subprocess.CalledProcessError as error:
            sys.exit(f"{name}: {' '.join(map(str, error.cmd[:6]))} … failed with {error.returncode}")


if __name__ == "__main__":
    main()
