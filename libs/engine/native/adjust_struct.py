"""An adjustment of logits in the form that the native kernels take."""

import ctypes
from array import array
from collections.abc import Sequence

from kernels.native.structs import HrAdjust
from libs.engine.adjustment import Adjustment
from libs.engine.native.packed_file import address


class AdjustStruct:
    """An HrAdjust and the banned ids it points to; everything else belongs to the adjustment, which must outlive it."""

    def __init__(self, adjustment: Adjustment | None, banned_ids: Sequence[int]) -> None:
        self._banned = array("i", banned_ids)
        self._struct = struct = HrAdjust(repetition=1.0)
        struct.banned, struct.banned_count = self._banned.buffer_info()
        if adjustment is not None:
            _fill(struct, adjustment)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._struct)


def _fill(struct: HrAdjust, how: Adjustment) -> None:
    if how.seen is not None:
        struct.seen, struct.seen_count = how.seen.ids.buffer_info()
        struct.counts = how.seen.counts.buffer_info()[0]
        struct.repetition, struct.frequency, struct.presence = how.repetition, how.frequency, how.presence
    if how.bias_ids_B is not None and how.bias_B is not None:
        struct.bias_ids, struct.bias_count = address(how.bias_ids_B), len(how.bias_ids_B)
        struct.bias = address(how.bias_B)
    for name in ("allowed", "mask"):
        words_W = getattr(how, f"{name}_W")
        if words_W is not None:
            setattr(struct, name, address(words_W))
    if how.mask_ready is not None:
        struct.mask_ready = address(how.mask_ready)
