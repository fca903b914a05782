"""Loads the kernels of one instruction level and gives their functions types."""

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kernels.native.build import NoCompiler, build, find_library
from kernels.native.levels import LEVELS, supported_levels

_NUMBER, _LONG, _POINTER, _TEXT = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
PROTOTYPES: Final[Mapping[str, tuple[type | None, tuple[type, ...]]]] = {
    "hr_open": (_POINTER, (_NUMBER,)),
    "hr_close": (None, (_POINTER,)),
    "hr_packed_bytes": (_LONG, (_POINTER,)),
    "hr_pack_linear": (_NUMBER, (_POINTER, _POINTER, _NUMBER, _POINTER, _POINTER)),
    "hr_step": (_NUMBER, (_POINTER, _POINTER, _POINTER, _POINTER, _NUMBER, _POINTER, _NUMBER, _POINTER)),
    "hr_linear": (_NUMBER, (_POINTER, _POINTER, _POINTER, _NUMBER, _POINTER, _POINTER)),
    "hr_watch": (None, (_POINTER, _POINTER)),
    "hr_op": (_TEXT, (_NUMBER,)),
    "hr_layout": (_NUMBER, (_POINTER, _NUMBER)),
    "hr_level": (_TEXT, ()),
    "hr_supported": (_NUMBER, ()),
    "hr_error": (_TEXT, (_NUMBER,)),
}


def load(level: str | None = None) -> ctypes.CDLL:
    """The library of a level, built first where it is missing and a compiler is there.

    Args:
        level: a name in LEVELS; None for the best one that this processor runs and that can be had.

    Raises: ValueError for a level that this processor does not run, NoCompiler when it is not built and cannot be.
    """
    supported = supported_levels()
    if level is None:
        return open_library(_best(supported))
    if level not in LEVELS:
        raise ValueError(f"no instruction level {level!r}, only {', '.join(LEVELS)}")
    if level not in supported:
        raise ValueError(f"this processor does not run {level}, only {', '.join(supported)}")
    return open_library(find_library(level) or build([level])[level])


def open_library(path: Path) -> ctypes.CDLL:
    """The functions of api.h in a library. A call holds no lock of the interpreter."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if not library.hr_supported():
        raise ValueError(f"this processor does not run the kernels in {path.name}")
    return library


def _best(supported: tuple[str, ...]) -> Path:
    """The best level, built if need be; without a compiler, the best one that is there."""
    try:
        return find_library(supported[0]) or build(supported[:1])[supported[0]]
    except NoCompiler:
        if found := next(filter(None, map(find_library, supported)), None):
            return found
        raise
