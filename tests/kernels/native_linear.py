"""Packs weights and multiplies by them through the C ABI, for tests."""

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import torch

from kernels.native.structs import DTYPES, SOURCES, HrLinear
from tests.kernels.native_levels import load_or_skip

NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


class Packed:
    """A packed weight and what its structure points to."""

    def __init__(self, struct: HrLinear, held: Sequence[object]) -> None:
        self.struct = struct
        self._held = held


class Native:
    """A team of threads over the kernels of one level."""

    def __init__(self, level: str, threads: int) -> None:
        self.library = load_or_skip(level)
        self.context = self.library.hr_open(threads)
        assert self.context

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.library.hr_close(self.context)

    def check(self, code: int) -> None:
        assert code == 0, self.library.hr_error(code).decode()

    def pack(
        self,
        weight_NK: torch.Tensor,
        dtype: torch.dtype | str,  # the class; a torch type is that of its name
        cuts: Sequence[int] = (),
        bias_N: torch.Tensor | None = None,
    ) -> Packed:
        N, K = weight_NK.shape
        weight_NK = weight_NK.contiguous()
        number = DTYPES[dtype if isinstance(dtype, str) else NAMES[dtype]]
        bounds = torch.tensor(tuple(cuts) or (0, K), dtype=torch.int32)
        bias = None if bias_N is None else bias_N.data_ptr()
        struct = HrLinear(None, bias, bounds.data_ptr(), len(bounds) - 1, N, K, number)
        size_bytes = self.library.hr_packed_bytes(ctypes.addressof(struct))
        self.check(min(size_bytes, 0))
        data = torch.empty(size_bytes + 64, dtype=torch.uint8)
        data = data[-data.data_ptr() % 64 :]  # on a cache line
        source = SOURCES[NAMES[weight_NK.dtype]]
        self.check(
            self.library.hr_pack_linear(
                self.context, weight_NK.data_ptr(), source, ctypes.addressof(struct), data.data_ptr()
            )
        )
        struct.data = data.data_ptr()
        return Packed(struct, (data, bounds, bias_N))

    def linear(self, x_MK: torch.Tensor, packed: Packed, residual_MN: torch.Tensor | None = None) -> torch.Tensor:
        x_MK = x_MK.contiguous()
        out_MN = x_MK.new_full((len(x_MK), packed.struct.n), torch.nan)
        residual = None if residual_MN is None else residual_MN.contiguous().data_ptr()
        self.check(
            self.library.hr_linear(
                self.context, ctypes.addressof(packed.struct), x_MK.data_ptr(), len(x_MK), residual, out_MN.data_ptr()
            )
        )
        return out_MN


def bits(x: torch.Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes()
