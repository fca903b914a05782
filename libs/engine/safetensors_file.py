"""Reads a safetensors file: a bounded, checked header over a private mapping of the file.

Model files come from strangers, so every length and offset is checked against the file before a byte is used.
Format: 8 bytes little-endian length of the header, the header as JSON, then the tensors' bytes.
"""

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LENGTH_BYTES: Final = 8
MAX_HEADER_BYTES: Final = 100 << 20
MAX_SHAPE_AXES: Final = 16
METADATA: Final = "__metadata__"
NUMPY_DTYPES: Final[Mapping[str, npt.DTypeLike]] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # bfloat16 as its bits


class SafetensorsError(ValueError):
    """The file is not one that this reader can trust or understand; the message names the place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies: `begin` and `end` count bytes of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """A parsed header, and the mapping that the arrays are views of. Writes to them stay in this process."""

    entries: Mapping[str, Entry]
    memory: mmap.mmap

    def array(self, name: str) -> Array:
        """F32 as float32, F16 as float16, BF16 as the uint16 that its bits are."""
        entry = self.entries[name]
        dtype = np.dtype(NUMPY_DTYPES[entry.dtype])
        flat = np.frombuffer(self.memory, dtype, prod(entry.shape), entry.begin)
        return np.require(flat, requirements="A").reshape(entry.shape)


def open_safetensors(path: Path) -> SafetensorsFile:
    """Parse the header and map the file. Raises SafetensorsError, OSError."""
    file_bytes = path.stat().st_size
    with path.open("rb") as file:
        length_bytes = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if file_bytes < LENGTH_BYTES or not 2 <= length_bytes <= min(MAX_HEADER_BYTES, file_bytes - LENGTH_BYTES):
            raise SafetensorsError(f"{path.name}: no header of a safetensors file")
        entries = _entries(path.name, file.read(length_bytes), LENGTH_BYTES + length_bytes, file_bytes)
        memory = mmap.mmap(file.fileno(), file_bytes, access=mmap.ACCESS_COPY)
    return SafetensorsFile(entries, memory)


def _entries(name: str, header: bytes, data_begin: int, file_bytes: int) -> dict[str, Entry]:
    try:
        content = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"{name}: the header is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise SafetensorsError(f"{name}: the header is not an object")
    entries = {}
    for tensor, fields in content.items():
        if tensor != METADATA:
            entries[tensor] = entry = _entry(f"{name}: tensor {tensor[:80]!r}", fields, data_begin)
            if entry.end > file_bytes:
                raise SafetensorsError(f"{name}: tensor {tensor[:80]!r} ends beyond the file")
    return entries


def _entry(where: str, fields: object, data_begin: int) -> Entry:
    if not isinstance(fields, dict):
        raise SafetensorsError(f"{where} is not described by an object")
    dtype, shape, offsets = fields.get("dtype"), _sizes(fields.get("shape")), _sizes(fields.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or len(shape) > MAX_SHAPE_AXES:
        raise SafetensorsError(f"{where} has no dtype and shape")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise SafetensorsError(f"{where} has no bounds")
    if dtype in NUMPY_DTYPES and offsets[1] - offsets[0] != prod(shape) * np.dtype(NUMPY_DTYPES[dtype]).itemsize:
        raise SafetensorsError(f"{where} has bounds that do not fit its shape")
    return Entry(dtype, shape, data_begin + offsets[0], data_begin + offsets[1])


def _sizes(value: object) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(type(size) is int and size >= 0 for size in value):
        return tuple(value)
    return None
