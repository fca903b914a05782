"""A packed weight's shape as the kernels take it: everything but where its data lies."""

import ctypes
from collections.abc import Sequence

from kernels.native.structs import DTYPES, HrLinear
from libs.engine.native.parts import Linear


class LinearStruct:
    """An HrLinear without data, and the segment bounds that it points to; `address` is that of the structure."""

    def __init__(self, linear: Linear, dtype: str) -> None:
        bounds: Sequence[int] = linear.product.cuts or (0, linear.inputs)
        self._cuts = (ctypes.c_int32 * len(bounds))(*bounds)
        self.struct = HrLinear(
            data=None,
            bias=None,
            cuts=ctypes.addressof(self._cuts),
            segments=len(bounds) - 1,
            n=linear.outputs,
            k=linear.inputs,
            dtype=DTYPES[dtype],
        )

    @property
    def address(self) -> int:
        return ctypes.addressof(self.struct)
