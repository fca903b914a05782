"""Reads a GGUF file: checked metadata, and each tensor dequantised to float32.

The header is parsed here with every length checked against the file, because model files come from
strangers; only the arithmetic of the quantisation formats is taken from the `gguf` package.
Format: the GGUF specification of the ggml project, versions 2 and 3, little endian.
"""

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

Float32Array = npt.NDArray[np.float32]
Scalar = int | float | bool | str
Value = Scalar | list[Scalar]

MAGIC: Final = 0x46554747  # "GGUF" read as a little-endian word
DEFAULT_ALIGNMENT_BYTES: Final = 32
MAX_DIMENSIONS: Final = 4
STRING_TYPE: Final = 8
ARRAY_TYPE: Final = 9
SCALAR_FORMATS: Final = MappingProxyType(
    {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
)


class GgufError(ValueError):
    """The file is not a GGUF that this reader can trust or understand; the message names the place."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies: shape as rows × columns (last axis contiguous), offsets in bytes of the file."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A parsed header over a read-only mapping of the file."""

    metadata: MappingProxyType[str, Value]
    tensors: MappingProxyType[str, TensorEntry]
    bytes_B: npt.NDArray[np.uint8]

    def integer(self, key: str, default: int | None = None) -> int:
        """The non-negative whole number under key; GgufError when absent without a default, or not one."""
        value = self.metadata.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise GgufError(f"{key}: expected a whole number, found {_shown(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """The number under key; GgufError when absent without a default, or not one."""
        value = self.metadata.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise GgufError(f"{key}: expected a number, found {_shown(value)}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """The truth value under key; GgufError when it is something else."""
        value = self.metadata.get(key, default)
        if not isinstance(value, bool):
            raise GgufError(f"{key}: expected true or false, found {_shown(value)}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """The string under key; GgufError when absent without a default, or not one."""
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            raise GgufError(f"{key}: expected text, found {_shown(value)}")
        return value

    def texts(self, key: str) -> list[str]:
        """The array of strings under key."""
        values = self.metadata.get(key)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise GgufError(f"{key}: expected an array of text, found {_shown(values)}")
        return cast(list[str], values)

    def integers(self, key: str) -> list[int]:
        """The array of whole numbers under key."""
        values = self.metadata.get(key)
        if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
            raise GgufError(f"{key}: expected an array of whole numbers, found {_shown(values)}")
        return cast(list[int], values)

    def float32(self, name: str) -> Float32Array:
        """One tensor dequantised: float32, contiguous, rows first. GgufError when absent, unreadable or not finite."""
        entry = self.tensors.get(name)
        if entry is None:
            raise GgufError(f"tensor {name} is missing")
        raw_B = self.bytes_B[entry.offset_bytes : entry.offset_bytes + entry.size_bytes]
        try:
            with np.errstate(all="ignore"):  # a scale that is not finite is reported below
                values = dequantize(raw_B.reshape(*entry.shape[:-1], -1), entry.kind)
        except NotImplementedError as error:
            raise GgufError(f"tensor {name}: format {entry.kind.name} cannot be read") from error
        if not np.isfinite(values).all():
            raise GgufError(f"tensor {name} holds a value that is not finite")
        return cast(Float32Array, np.ascontiguousarray(values.reshape(entry.shape), dtype=np.float32))


class _Cursor:
    """Walks the header and never past the end of the file."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.position = 0

    def take(self, size_bytes: int) -> memoryview:
        end = self.position + size_bytes
        if end > len(self.view):
            raise GgufError(f"file ends inside a field at byte {self.position}")
        piece = self.view[self.position : end]
        self.position = end
        return piece

    def unpack(self, letter: str, count: int = 1) -> tuple[Scalar, ...]:
        size_bytes = count * struct.calcsize(f"<{letter}")
        return struct.unpack(f"<{count}{letter}", self.take(size_bytes))

    def integer(self, letter: str) -> int:
        return cast(int, self.unpack(letter)[0])

    def string(self) -> str:
        try:
            return str(self.take(self.integer("Q")), "utf-8")
        except UnicodeDecodeError as error:
            raise GgufError(f"text before byte {self.position} is not UTF-8") from error

    def value(self) -> Value:
        kind = self.integer("I")
        if kind != ARRAY_TYPE:
            return self.values(kind, 1)[0]
        return self.values(self.integer("I"), self.integer("Q"))

    def values(self, kind: int, count: int) -> list[Scalar]:
        if kind == STRING_TYPE:
            if count * 8 > len(self.view):
                raise GgufError(f"array of {count} strings at byte {self.position} cannot fit in the file")
            return [self.string() for _ in range(count)]
        if kind not in SCALAR_FORMATS:
            raise GgufError(f"value of unknown type {kind} at byte {self.position}")
        return list(self.unpack(SCALAR_FORMATS[kind], count))


def read_gguf(path: Path) -> GgufFile:
    """Map the file and parse its header; tensors stay on disk until asked for.

    Raises: GgufError when the file is malformed, truncated or of another version; OSError when unreadable.
    """
    if path.stat().st_size == 0:
        raise GgufError("file is empty")
    return parse_gguf(np.memmap(path, dtype=np.uint8, mode="r"))


def parse_gguf(bytes_B: npt.NDArray[np.uint8]) -> GgufFile:
    """Parse the header of a whole file's bytes, which the result keeps as they are. Raises: GgufError."""
    cursor = _Cursor(bytes_B.data)
    if cursor.integer("I") != MAGIC:
        raise GgufError("not a GGUF file")
    if (version := cursor.integer("I")) not in (2, 3):
        raise GgufError(f"GGUF version {version} is not supported")
    tensor_count, key_count = cursor.integer("Q"), cursor.integer("Q")
    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        key = cursor.string()
        if key in metadata:
            raise GgufError(f"key {key} appears twice")
        metadata[key] = cursor.value()
    tensors = _read_tensor_table(cursor, tensor_count, metadata.get("general.alignment", DEFAULT_ALIGNMENT_BYTES))
    return GgufFile(MappingProxyType(metadata), MappingProxyType(tensors), bytes_B)


def _read_tensor_table(cursor: _Cursor, count: int, alignment: Value) -> dict[str, TensorEntry]:
    if not isinstance(alignment, int) or alignment <= 0:
        raise GgufError(f"general.alignment: found {_shown(alignment)}")
    relative: list[TensorEntry] = []
    for _ in range(count):
        name = cursor.string()
        dimensions = cursor.integer("I")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise GgufError(f"tensor {name} has {dimensions} dimensions")
        shape = cast(tuple[int, ...], cursor.unpack("Q", dimensions))[::-1]
        kind, offset_bytes = _format(name, cursor.integer("I")), cursor.integer("Q")
        relative.append(TensorEntry(name, shape, kind, offset_bytes, _size_bytes(name, shape, kind)))
    start_bytes = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorEntry] = {}
    for entry in relative:
        offset_bytes = start_bytes + entry.offset_bytes
        if offset_bytes + entry.size_bytes > len(cursor.view):
            raise GgufError(f"tensor {entry.name} reaches past the end of the file")
        if entry.name in tensors:
            raise GgufError(f"tensor {entry.name} appears twice")
        tensors[entry.name] = TensorEntry(entry.name, entry.shape, entry.kind, offset_bytes, entry.size_bytes)
    return tensors


def _format(name: str, kind: int) -> GGMLQuantizationType:
    if kind not in GGML_QUANT_SIZES:  # an IntEnum's members equal their numbers
        raise GgufError(f"tensor {name} has unknown format {kind}")
    return GGMLQuantizationType(kind)


def _size_bytes(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> int:
    block_elements, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block_elements or 0 in shape:
        raise GgufError(f"tensor {name} of shape {shape} is not made of whole {kind.name} blocks")
    return prod(shape) // block_elements * block_bytes


def _shown(value: object) -> str:
    """A value for an error message, short whatever the file holds."""
    return f"{type(value).__name__} {str(value)[:40]!r}" if not isinstance(value, list) else f"{len(value)} values"
