"""The native kernels of one level with a team of threads: their C functions, with errors as exceptions."""

import ctypes
import weakref
from itertools import count, takewhile
from typing import Protocol

from kernels.native.structs import SOURCES
from libs.contracts.errors import ConfigError
from libs.engine.native.linear_struct import LinearStruct
from libs.engine.native.packed_file import Bytes, address
from libs.engine.native.step_rows import StepRows
from libs.engine.safetensors_file import Array


class Library(Protocol):
    """The functions of kernels/native/api.h; addresses are plain numbers, 0 where C has null."""

    def hr_open(self, threads: int, /) -> int | None: ...
    def hr_close(self, context: int, /) -> None: ...
    def hr_packed_bytes(self, weight: int, /) -> int: ...
    def hr_pack_linear(self, context: int, source: int, source_type: int, weight: int, packed: int, /) -> int: ...
    def hr_step(
        self, context: int, model: int, pool: int, ids: int, tokens: int, rows: int, row_count: int, logits: int, /
    ) -> int: ...
    def hr_watch(self, context: int, ns: int, /) -> None: ...
    def hr_op(self, op: int, /) -> bytes | None: ...
    def hr_error(self, code: int, /) -> bytes: ...


class Kernels:
    """Used by one thread at a time. The team ends with this object.

    Raises: ConfigError when threads or memory cannot be had.
    """

    def __init__(self, library: Library, threads: int) -> None:
        context = library.hr_open(threads)
        if not context:
            raise ConfigError(f"cannot start {threads} threads for the native kernels")
        self._library, self._context = library, context
        self._closing = weakref.finalize(self, library.hr_close, context)
        self._closing.atexit = False  # a step that outlives the process's patience still uses the context

    def close(self) -> None:
        self._closing()

    def packed_bytes(self, linear: LinearStruct) -> int:
        size_bytes = self._library.hr_packed_bytes(linear.address)
        self._check(min(size_bytes, 0))
        return size_bytes

    def pack_linear(self, linear: LinearStruct, source_NK: Array, is_bfloat16: bool, packed: Bytes) -> None:
        """Round or quantise a weight (float32, float16 or the bits of bfloat16, contiguous) and lay it out."""
        assert source_NK.shape == (linear.struct.n, linear.struct.k)
        kind = SOURCES["bfloat16" if is_bfloat16 else str(source_NK.dtype)]
        self._check(
            self._library.hr_pack_linear(self._context, address(source_NK), kind, linear.address, address(packed))
        )

    def step(self, model: int, pool: int, rows: StepRows, row_count: int, logits: int) -> None:
        """Advance rows by a step; the addresses are those of an HrModel, an HrPool, and of room for logits or 0."""
        self._check(
            self._library.hr_step(
                self._context, model, pool, rows.ids_address, rows.tokens, rows.rows_address, row_count, logits
            )
        )

    def watch(self) -> None:
        """Count the time of each op from here on."""
        self._watched = (ctypes.c_int64 * len(self._ops()))()
        self._library.hr_watch(self._context, ctypes.addressof(self._watched))

    def unwatch(self) -> dict[str, int]:
        """Wall nanoseconds by op, since `watch`; nothing is counted any more."""
        self._library.hr_watch(self._context, 0)
        return dict(zip(self._ops(), self._watched, strict=True))

    def _ops(self) -> list[str]:
        names = (self._library.hr_op(op) or b"" for op in count())
        return [name.decode() for name in takewhile(bool, names)]

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"native kernels: {self._library.hr_error(code).decode()}")
