"""Calls single operations of the native kernels through ctypes: the test entry points of kernels/native/testing.cpp.

Axes: M tokens, K width, Q query heads, H kv heads, D head dim, T tokens of a block, N blocks, L layers, V vocabulary.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from kernels.native.structs import HrRow as Row
from libs.engine.adjustment import Adjustment
from libs.engine.native.adjust_struct import AdjustStruct

DTYPES = {torch.float32: 0, torch.bfloat16: 1}
Int, Long, Float, Double, Pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double, ctypes.c_void_p


class _Pool(ctypes.Structure):
    _fields_ = [("kv", Pointer), ("fill_counts", Pointer), ("blocks", Int), ("block_tokens", Int)]


class _RmsNorm(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("x", "rows", "weight", "out")),
        *((name, Int) for name in ("tokens", "width")),
        ("eps", Float),
        ("dtype", Int),
        ("reader", Pointer),
    ]


class _Swiglu(ctypes.Structure):
    _fields_ = [("gate_up", Pointer), ("out", Pointer), *((name, Int) for name in ("tokens", "width", "dtype"))]


class _RopeKv(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("qkv", "q", "pool", "positions", "blocks", "cos", "sin")),
        *((name, Int) for name in ("tokens", "heads", "kv_heads", "head_dim", "layers", "layer", "dtype")),
        *((name, Pointer) for name in ("q_norm", "k_norm")),
        ("rms_eps", Float),
    ]


class _Attention(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("q", "out", "pool", "rows", "plan")),
        *((name, Int) for name in ("heads", "kv_heads", "head_dim", "layers", "layer")),
        ("scale", Float),
        ("window", Int),
        ("dtype", Int),
        ("out_dtype", Int),
    ]


def at(tensor: torch.Tensor | None) -> int | None:
    assert tensor is None or tensor.is_contiguous()
    return None if tensor is None else tensor.data_ptr()


@dataclass(frozen=True, slots=True)
class Pool:
    """Blocks as the kernels tile them: K [D / P][T][P], V [T / P][D][P], P members of a 32-bit word."""

    kv_NLCHX: torch.Tensor
    block_tokens: int
    head_dim: int

    @classmethod
    def unwritten(cls, shape_NLH: tuple[int, int, int], T: int, D: int, dtype: torch.dtype) -> "Pool":
        N, L, H = shape_NLH
        return cls(torch.full((N, L, 2, H, T * D), torch.nan, dtype=dtype), T, D)

    def as_struct(self) -> _Pool:
        return _Pool(self.kv_NLCHX.data_ptr(), None, len(self.kv_NLCHX), self.block_tokens)

    def untiled(self) -> torch.Tensor:
        """[N, L, 2, H, T, D]: a copy in the plain layout."""
        T, D = self.block_tokens, self.head_dim
        P = 2 if self.kv_NLCHX.dtype == torch.bfloat16 else 1
        head = self.kv_NLCHX.shape[:2] + self.kv_NLCHX.shape[3:4]
        k = self.kv_NLCHX[:, :, 0].reshape(*head, D // P, T, P).transpose(-3, -2).reshape(*head, T, D)
        v = self.kv_NLCHX[:, :, 1].reshape(*head, T // P, D, P).transpose(-2, -1).reshape(*head, T, D)
        return torch.stack((k, v), dim=2)


@dataclass(frozen=True, slots=True)
class Draw:
    """What a row asks for; filters: temperature, min_p, top_k, top_p."""

    filters: tuple[float, float, int, float]
    key: int = 1
    position: int = 0
    banned: tuple[int, ...] = ()
    wants_logprob: bool = True
    adjustment: Adjustment | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    token: int
    logprob: float
    is_nan: bool


class Ops:
    """The operations of one instruction level; `threads` and `seed` choose who runs the tiles and in which order."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.threads, self.seed = 1, 0

    @contextmanager
    def shuffled(self, threads: int, seed: int) -> Iterator[None]:
        """Tiles in the order that the seed draws, taken by so many threads."""
        self.threads, self.seed = threads, seed
        try:
            yield
        finally:
            self.threads, self.seed = 1, 0

    def lanes(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """exp, log or round of a flat float32 tensor."""
        y = x.new_empty(x.shape, dtype=torch.bfloat16 if name == "round" else torch.float32)
        getattr(self._library, f"hr_test_{name}")(Pointer(at(x)), Pointer(at(y)), Long(x.numel()))
        return y

    def dot_pairs(self, sums: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """sums [n] float32 + Σ of the pairs of a and b, [n, 2] bfloat16."""
        y = torch.empty_like(sums)
        self._library.hr_test_dot_pairs(*(Pointer(at(x)) for x in (sums, a, b, y)), Long(sums.numel()))
        return y

    def rms_norm(
        self, x_MK: torch.Tensor, weight_K: torch.Tensor, dtype: torch.dtype, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        out = x_MK.new_empty((len(x_MK) if rows is None else len(rows), x_MK.shape[1]), dtype=dtype)
        tensors = (at(x_MK), at(rows), at(weight_K), at(out))
        self._run("rms_norm", _RmsNorm(*tensors, len(out), x_MK.shape[1], 1e-5, DTYPES[dtype]))
        return out

    def swiglu(self, gate_up_ME: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        M, E = gate_up_ME.shape
        out = gate_up_ME.new_empty((M, E // 2), dtype=dtype)
        self._run("swiglu", _Swiglu(at(gate_up_ME), at(out), M, E // 2, DTYPES[dtype]))
        return out

    def rope_kv(
        self,
        qkv_MAD: torch.Tensor,
        tables: tuple[torch.Tensor, torch.Tensor],
        pool: Pool,
        layer: int,
        slots: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """Queries [M, Q, D]; keys and values go into the pool. slots: positions and blocks, [M] int32 each."""
        _, L, _, H, _ = pool.kv_NLCHX.shape
        M, A, D = qkv_MAD.shape
        q = qkv_MAD.new_empty((M, A - 2 * H, D), dtype=pool.kv_NLCHX.dtype)
        where = pool.as_struct()
        pointers = (
            at(qkv_MAD),
            at(q),
            ctypes.addressof(where),
            at(slots[0]),
            at(slots[1]),
            at(tables[0]),
            at(tables[1]),
        )
        self._run("rope_kv", _RopeKv(*pointers, M, A - 2 * H, H, D, L, layer, DTYPES[q.dtype]))
        return q

    def attention(
        self,
        q_MQD: torch.Tensor,
        pool: Pool,
        layer: int,
        rows: Sequence[tuple[int, int, torch.Tensor]],
        window: int = 0,
    ) -> torch.Tensor:
        """[M, Q, D] of the pool's dtype. rows: (base, tokens, table [B] int32), one after the other in M."""
        _, L, _, H, _ = pool.kv_NLCHX.shape
        _, Q, D = q_MQD.shape
        assert q_MQD.dtype == pool.kv_NLCHX.dtype
        out = torch.empty_like(q_MQD)
        structs = (Row * len(rows))()
        start = 0
        for struct, (base, tokens, table) in zip(structs, rows, strict=True):
            struct.start, struct.tokens, struct.base, struct.table = start, tokens, base, at(table)
            start += tokens
        where = pool.as_struct()
        args = _Attention(at(q_MQD), at(out), ctypes.addressof(where), ctypes.addressof(structs), None)
        args.heads, args.kv_heads, args.head_dim, args.layers, args.layer = Q, H, D, L, layer
        args.scale, args.window, args.dtype = D**-0.5, window, DTYPES[q_MQD.dtype]
        args.out_dtype = args.dtype
        self._library.hr_test_attention(ctypes.byref(args), len(rows), self.threads, self.seed, 2)
        return out

    def philox(self, key: int, position: int, ids: int, at_once: bool) -> torch.Tensor:
        """[ids] int64: the words of ids from 0 on; ids a multiple of 32."""
        words = torch.empty(ids, dtype=torch.int32)
        self._library.hr_test_philox(
            ctypes.c_uint64(key), ctypes.c_uint32(position), Long(ids), at_once, Pointer(at(words))
        )
        return words.long() & 0xFFFFFFFF

    def sample(self, logits_RV: torch.Tensor, draws: Sequence[Draw]) -> list[Drawn]:
        structs = (Row * len(draws))()
        adjusts = [
            AdjustStruct(draw.adjustment, draw.banned) if draw.adjustment or draw.banned else None for draw in draws
        ]
        for struct, draw, adjust in zip(structs, draws, adjusts, strict=True):
            struct.temperature, struct.min_p, struct.top_k, struct.top_p = draw.filters
            struct.key, struct.position, struct.draws, struct.wants_logprob = (
                draw.key,
                draw.position,
                1,
                draw.wants_logprob,
            )
            struct.adjust, struct.token = adjust and adjust.address, -1
        R, V = logits_RV.shape
        self._library.hr_test_sample(Pointer(at(logits_RV)), V, ctypes.byref(structs), R, self.threads, self.seed)
        return [Drawn(struct.token, struct.logprob, bool(struct.is_nan)) for struct in structs]

    def _run(self, name: str, args: ctypes.Structure) -> None:
        getattr(self._library, f"hr_test_{name}")(ctypes.byref(args), self.threads, self.seed)
