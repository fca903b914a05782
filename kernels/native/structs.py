"""The structures of api.h in ctypes. Pointers are plain addresses: whoever fills one keeps what it points to."""

import ctypes
from collections.abc import Iterator, Mapping
from typing import Final

DTYPES: Final[Mapping[str, int]] = {"float32": 0, "bfloat16": 1, "int8": 2, "int8w": 3}
SOURCES: Final[Mapping[str, int]] = {"float32": 0, "bfloat16": 1, "float16": 2}


class HrLinear(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("data", "bias", "cuts")),
        *((name, ctypes.c_int32) for name in ("segments", "n", "k", "dtype")),
    )


class HrLayer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("attention_norm", "q_norm", "k_norm")),
        ("is_windowed", ctypes.c_int32),
        ("qkv", HrLinear),
        ("o", HrLinear),
        ("ffn_norm", ctypes.c_void_p),
        ("gate_up", HrLinear),
        ("down", HrLinear),
    )


class HrModel(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn")),
        *((name, ctypes.c_int32) for name in ("vocab", "positions", "dtype", "window")),
        *((name, ctypes.c_float) for name in ("rms_eps", "scale")),
        *((name, ctypes.c_void_p) for name in ("embedding", "layer", "final_norm", "head", "cos", "sin")),
    )


class HrPool(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("kv", "fill_counts")),
        *((name, ctypes.c_int32) for name in ("blocks", "block_tokens")),
    )


class HrTop(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int32), ("logprob", ctypes.c_float))


class HrScore(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_int32),
        ("logprob", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("rank", "top_count")),
        ("top", ctypes.c_void_p),
    )


class HrAdjust(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("seen", "counts")),
        *((name, ctypes.c_float) for name in ("repetition", "frequency", "presence")),
        ("seen_count", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("bias_ids", "bias", "allowed", "mask", "mask_ready", "banned")),
        *((name, ctypes.c_int32) for name in ("bias_count", "banned_count")),
    )


class HrRow(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("start", "tokens", "base", "draws")),
        ("table", ctypes.c_void_p),
        *((name, ctypes.c_double) for name in ("temperature", "min_p", "top_p")),
        ("top_k", ctypes.c_int32),
        ("position", ctypes.c_uint32),
        ("key", ctypes.c_uint64),
        ("adjust", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("wants_logprob", "token", "is_nan")),
        ("logprob", ctypes.c_float),
        ("fork_count", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("forks", "top")),
        *((name, ctypes.c_int32) for name in ("top_count", "top_is_raw", "score_count")),
        ("scores", ctypes.c_void_p),
    )


STRUCTS: Final = (HrLinear, HrLayer, HrModel, HrPool, HrTop, HrScore, HrAdjust, HrRow)


def layout() -> Iterator[int]:
    """Size and field offsets of each structure, in the order of `hr_layout`."""
    for struct in STRUCTS:
        yield ctypes.sizeof(struct)
        yield from (getattr(struct, field[0]).offset for field in struct._fields_)
