"""Settles which kernels compute: native ones of an instruction level, or the torch references. No torch here.

A stack settles it once, since the layout of its pool depends on it; every worker then checks that it can.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from kernels.native.build import NoCompiler
from kernels.native.levels import LEVELS
from kernels.native.library import load
from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import CPU_TILE_TAGS, KV_DTYPES, TILE_TAG_PLAIN

AUTO: Final = "auto"
TORCH: Final = "torch"
NATIVE: Final = "native"
PREFIX: Final = "native:"
HEAD_DIM_UNIT: Final = 16  # of the native kernels, as kernels/native/step_check.cpp has it
MAX_HEAD_DIM: Final = 256


def settle_kernels(wanted: str, head_dims: Collection[int] = ()) -> str:
    """ "native:<level>" or "torch": the best that `wanted` allows on this machine.

    Args:
        wanted: "auto", "native", "torch", a level, or "native:<level>".
        head_dims: of the models that will be computed.

    Raises: ConfigError when it allows nothing that this machine can do for these models.
    """
    if wanted == AUTO and not all(map(_is_native_head, head_dims)):
        return TORCH
    settled = choose(wanted, tuple(LEVELS), _problem)
    for head_dim in head_dims:
        check_head_dim(settled, head_dim)
    return settled


def choose(wanted: str, levels: Sequence[str], problem: Callable[[str], str]) -> str:
    """As `settle_kernels`; `levels` come best first, and `problem` says why this machine cannot use one, or ""."""
    if wanted == TORCH:
        return TORCH
    level = wanted.removeprefix(PREFIX)
    if level not in (AUTO, NATIVE, *levels):
        raise ConfigError(f"kernels are one of {', '.join((AUTO, NATIVE, TORCH, *levels))}, not {wanted!r}")
    problems = []
    for candidate in levels if level in (AUTO, NATIVE) else (level,):
        if not (found := problem(candidate)):
            return PREFIX + candidate
        problems.append(f"{candidate}: {found}")
    if level == AUTO:
        return TORCH
    raise ConfigError(f"no native kernels ({'; '.join(problems)})")


def _problem(level: str) -> str:
    """Why this machine cannot use a level, found by loading it; it is built where it is missing."""
    try:
        load(level)
    except (NoCompiler, OSError, ValueError) as error:
        return str(error)
    return ""


def level_of(kernels: str) -> str:
    """The level of settled native kernels, "" for torch."""
    return kernels.removeprefix(PREFIX) if kernels.startswith(PREFIX) else ""


def check_dtype(kernels: str, dtype: str) -> None:
    """Raises ConfigError when settled kernels have no products by weights of `dtype`."""
    if kernels == TORCH and KV_DTYPES.get(dtype, dtype) != dtype:
        raise ConfigError(f"dtype {dtype} takes native kernels, and what serves here is torch")


def check_head_dim(kernels: str, head_dim: int) -> None:
    """Raises ConfigError when settled kernels do not take heads of this size."""
    if level_of(kernels) and not _is_native_head(head_dim):
        raise ConfigError(
            f"head_dim {head_dim} takes the torch kernels: the native ones take multiples of {HEAD_DIM_UNIT} up to "
            f"{MAX_HEAD_DIM}"
        )


def _is_native_head(head_dim: int) -> bool:
    return head_dim % HEAD_DIM_UNIT == 0 and head_dim <= MAX_HEAD_DIM


def tile_tag(kernels: str, dtype: str) -> str:
    """How settled kernels lay out a head's tile of a KV block of this KV dtype."""
    return CPU_TILE_TAGS.get(dtype, TILE_TAG_PLAIN) if level_of(kernels) else TILE_TAG_PLAIN
