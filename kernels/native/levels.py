"""The instruction levels that the kernels are compiled for, and which of them this processor runs."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CPUINFO: Final = Path("/proc/cpuinfo")
PORTABLE: Final = "portable"


@dataclass(frozen=True, slots=True)
class Level:
    """`features` are names in the processor's list of flags; each is a compiler option, too."""

    features: tuple[str, ...]


_AVX2: Final = ("avx2", "fma", "f16c")
_AVX512: Final = (*_AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq")
LEVELS: Final[Mapping[str, Level]] = {  # best first
    "avx512bf16": Level((*_AVX512, "avx512_vnni", "avx512_bf16")),
    "avx512": Level(_AVX512),
    "avx2": Level(_AVX2),
    PORTABLE: Level(()),
}


def compiler_options(level: str) -> tuple[str, ...]:
    return tuple(f"-m{feature.replace('_', '')}" for feature in LEVELS[level].features)


def supported_levels(cpuinfo: Path = CPUINFO) -> tuple[str, ...]:
    """Levels that this processor runs, best first; the portable one at least."""
    flags = _flags(cpuinfo) if platform.machine() in ("x86_64", "AMD64") else frozenset()
    return tuple(name for name, level in LEVELS.items() if flags.issuperset(level.features))


def _flags(cpuinfo: Path) -> frozenset[str]:
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split(":", 1)[1] for line in lines if line.startswith("flags")), "").split())
