"""Compiles the kernels into one shared library a level, named by its sources: `python -m kernels.native.build`.

A library's name holds a digest of the sources and one of the compiler, so a stale one is never taken for a fresh one.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kernels.native.levels import LEVELS, compiler_options, supported_levels

SOURCES: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = (SOURCES / "native" / "build", Path.home() / ".cache" / "headrace" / "kernels")
COMPILERS: Final = ("g++", "c++", "clang++")
OPTIONS: Final = (
    *("-std=c++20", "-O3", "-Wall", "-Wextra", "-fPIC", "-pthread", "-fno-semantic-interposition"),
    *("-ffp-contract=off", "-fno-math-errno"),  # a product and a sum are rounded apart, unless the source says fma
)
LINK_OPTIONS: Final = ("-shared", "-pthread", "-static-libgcc", "-static-libstdc++")
EXPORTS: Final = "{ global: hr_*; local: *; };\n"
ANYWHERE: Final = "level.cpp"  # asks the processor what it is: compiled without a level's options
DIGEST_DIGITS: Final = 12


class NoCompiler(RuntimeError):
    """The kernels cannot be built here; the message says what is missing."""


def build(levels: Sequence[str] = (), folder: Path | None = None) -> dict[str, Path]:
    """Compile what is not there yet and return the library of each level.

    Args:
        levels: names in LEVELS; empty for those that this processor runs.
        folder: where libraries go; None for beside the sources, or the user's cache where those cannot be written.

    Raises: NoCompiler when there is none or it fails.
    """
    folder = next(filter(_is_writable, FOLDERS)) if folder is None else folder
    compiler = find_compiler()
    wanted = {level: folder / library_name(level, compiler) for level in levels or supported_levels()}
    with _alone(folder):
        missing = [level for level, path in wanted.items() if not path.exists()]
        _compile(compiler, missing, wanted)
        for level in missing:
            _remove_stale(folder, level, wanted[level])
    return wanted


def find_library(level: str) -> Path | None:
    """The library of a level built from these sources, by whatever compiler; None when there is none."""
    name = f"{level}-{source_digest()}-*.so"
    return next((path for folder in FOLDERS for path in sorted(folder.glob(name))), None)


def source_digest() -> str:
    """Hash over everything that is compiled, and how."""
    digest = hashlib.sha256(repr((OPTIONS, LINK_OPTIONS, EXPORTS, LEVELS)).encode())
    for path in sorted((*_translation_units(), *SOURCES.rglob("*.h"))):
        digest.update(f"\0{path.relative_to(SOURCES)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:DIGEST_DIGITS]


def library_name(level: str, compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    return f"{level}-{source_digest()}-{hashlib.sha256(version).hexdigest()[:DIGEST_DIGITS]}.so"


def find_compiler() -> str:
    """Path of a C++ compiler. Raises: NoCompiler."""
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise NoCompiler(f"no C++ compiler: none of {', '.join(COMPILERS)} is on the PATH")
    return found


def _translation_units() -> list[Path]:
    return sorted((*SOURCES.glob("*.cpp"), *(SOURCES / "native").glob("*.cpp")))


def _compile(compiler: str, levels: Sequence[str], targets: dict[str, Path]) -> None:
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        units = [(level, source) for source in _translation_units() for level in levels]
        objects = list(pool.map(lambda unit: _compile_unit(compiler, unit[0], unit[1], Path(scratch)), units))
        for level in levels:
            mine = [path for (of, _), path in zip(units, objects, strict=True) if of == level]
            _link(compiler, mine, targets[level], Path(scratch))


def _compile_unit(compiler: str, level: str, source: Path, scratch: Path) -> Path:
    target = scratch / level / f"{source.stem}.o"
    target.parent.mkdir(exist_ok=True)
    options = () if source.name == ANYWHERE else compiler_options(level)
    place = (f"-I{SOURCES}", f'-DHR_LEVEL="{level}"', "-c", str(source), "-o", str(target))
    _run([compiler, *OPTIONS, *options, *place])
    return target


def _link(compiler: str, objects: Sequence[Path], target: Path, scratch: Path) -> None:
    """Link beside the target and rename: a reader sees a whole library or none."""
    exports = scratch / "exports"
    exports.write_text(EXPORTS, encoding="ascii")
    partial = target.with_suffix(f".{os.getpid()}.partial")
    try:
        _run([compiler, *LINK_OPTIONS, f"-Wl,--version-script={exports}", *map(str, objects), "-o", str(partial)])
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompiler(f"{command[0]} failed on {command[-3]}: {done.stderr.strip()[-2000:]}")


def _is_writable(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return os.access(existing, os.W_OK)


def _remove_stale(folder: Path, level: str, fresh: Path) -> None:
    """Libraries of other sources; processes that have them mapped keep them."""
    for path in folder.glob(f"{level}-*.so"):
        if path != fresh:
            path.unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One build at a time: the second finds what the first has made."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="kernels.native.build", description="compile the CPU kernels")
    parser.add_argument("--all", action="store_true", help="every level, not only the best that this processor runs")
    parser.add_argument("--also", metavar="LEVEL", default="", help="and this one, where the processor runs it")
    arguments = parser.parse_args()
    best, *others = supported_levels()
    chosen = (best, *(level for level in others if level == arguments.also))
    try:
        built = build(tuple(LEVELS) if arguments.all else chosen)
    except NoCompiler as error:
        sys.stderr.write(f"the native kernels are not built: {error}. The torch reference serves instead, slower.\n")
        return 0
    sys.stdout.write(f"native kernels: {', '.join(built)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
