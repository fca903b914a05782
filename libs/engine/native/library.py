"""Loads the native kernels of a level, and names what they were made from."""

import ctypes
import hashlib
from pathlib import Path

from kernels.native.build import NoCompiler
from kernels.native.library import load
from libs.contracts.errors import ConfigError
from libs.engine.numerics_class import DIGEST_DIGITS


def open_level(level: str) -> tuple[ctypes.CDLL, str]:
    """The library of a level, built first where it is missing, and the digest of its sources and compiler.

    Raises: ConfigError when this processor does not run it, or it is not built and cannot be.
    """
    try:
        library = load(level)
    except (NoCompiler, OSError, ValueError) as error:
        raise ConfigError(f"native kernels: {error}") from error
    made_from = Path(library._name).stem  # the level, and digests of the sources and the compiler
    return library, hashlib.sha256(made_from.encode()).hexdigest()[:DIGEST_DIGITS]
