"""Names the numerics class: work and cached blocks never cross between processes that name different ones.

No torch here: every family of kernels is named in the same form.
"""

import hashlib
from pathlib import Path
from typing import Final

import kernels
from kernels.segments import DOWN_SEGMENTS, PIECE_TOKENS

SOURCES: Final = (".py", ".cpp", ".h")
DIGEST_DIGITS: Final = 12


def class_name(family: str, dtype: str, kv_dtype: str, kernel_digest: str, probe_digest: str) -> str:
    """family/dtype/KV type/kernel digest/probe/segments/S, as sent in Hello.

    Args:
        family: what executes the kernels: "torch", or the level of the native ones.
        kernel_digest: over their sources and over what compiles or executes them.
        probe_digest: over the bits that they give for a fixed input.
    """
    segments, pieces = f"o:kv,down:{DOWN_SEGMENTS}", f"S{PIECE_TOKENS}"
    return "/".join((family, dtype, kv_dtype, kernel_digest, probe_digest, segments, pieces))


def source_digest(executor: str) -> str:
    """Hash over the sources of all kernels, and the name and version of what compiles or executes them."""
    root = Path(kernels.__path__[0])
    digest = hashlib.sha256(executor.encode())
    for path in sorted(path for path in root.rglob("*") if path.suffix in SOURCES):
        digest.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:DIGEST_DIGITS]
