"""A tiny random Llama for the native step, its pool, and the same forward pass in plain torch."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from kernels.native.structs import DTYPES, HrLayer, HrLinear, HrModel, HrPool, HrRow
from kernels.rms_norm import rms_norm
from kernels.rope import rope, rope_tables
from kernels.segments import even_cuts
from tests.kernels.native_linear import Native, Packed

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, POSITIONS = 2, 64, 6, 2, 16, 131, 640
EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Row:
    """Ids that a sequence feeds in one step, from position `base` on, over the blocks of `table`."""

    ids: Sequence[int]
    base: int
    table: Sequence[int]
    draws: bool = True


class TinyModel:
    """Random weights packed for a library in a class, and kept for torch."""

    def __init__(self, native: Native, kind: str, ffn: int = 160, block_tokens: int = 16, layers: int = LAYERS) -> None:
        self.native, self.kind, self.ffn, self.block_tokens, self.layers = native, kind, ffn, block_tokens, layers
        self.dtype = torch.float32 if kind == "float32" else torch.bfloat16  # of KV, and of torch's own forward pass
        self._held: list[object] = []
        self.weights: list[dict[str, torch.Tensor]] = []
        heads_width = HEADS * HEAD_DIM
        shapes = {
            "qkv": (heads_width + 2 * KV_HEADS * HEAD_DIM, HIDDEN),
            "o": (HIDDEN, heads_width),
            "gate_up": (2 * ffn, HIDDEN),
            "down": (HIDDEN, ffn),
        }
        cuts = {"o": tuple(range(0, heads_width + 1, heads_width // KV_HEADS)), "down": even_cuts(ffn)}
        self._layers = (HrLayer * layers)()
        for layer in self._layers:
            weights = {name: self._random(N, K) for name, (N, K) in shapes.items()}
            norms = {name: 1 + 0.1 * torch.randn(HIDDEN) for name in ("attention_norm", "ffn_norm")}
            for name, weight in weights.items():
                setattr(layer, name, self._pack(weight, cuts.get(name, ())).struct)
            for name, norm in norms.items():
                setattr(layer, name, norm.data_ptr())
            self.weights.append(weights | norms)
        self.embedding, self.final_norm = self._random(VOCAB, HIDDEN) * 8, 1 + 0.1 * torch.randn(HIDDEN)
        self.cos_PF, self.sin_PF = rope_tables(HEAD_DIM, 10000.0, POSITIONS)
        self._head = self._pack(self.embedding, ())
        self.struct = self._struct(self._head.struct)

    def _random(self, N: int, K: int) -> torch.Tensor:
        return torch.randn(N, K).div(K**0.5).to(self.dtype).float()

    def _pack(self, weight_NK: torch.Tensor, cuts: Sequence[int]) -> Packed:
        packed = self.native.pack(weight_NK, self.kind, cuts)
        self._held.append(packed)
        return packed

    def _struct(self, head: HrLinear) -> HrModel:
        numbers = (self.layers, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, self.ffn, VOCAB, POSITIONS, DTYPES[self.kind], 0)
        at = ctypes.addressof(head)
        norm, cos, sin = (x.data_ptr() for x in (self.final_norm, self.cos_PF, self.sin_PF))
        return HrModel(*numbers, EPS, HEAD_DIM**-0.5, at, ctypes.addressof(self._layers), norm, at, cos, sin)

    def forward(self, ids: Sequence[int]) -> torch.Tensor:
        """[M, V] logits of a whole sequence, by torch, inputs of products rounded to the class."""
        x = self.embedding[torch.tensor(ids)]
        for weights in self.weights:
            h = self._rounded(rms_norm(x, weights["attention_norm"], EPS))
            x = x + self._attend(h @ weights["qkv"].T) @ weights["o"].T
            h = self._rounded(rms_norm(x, weights["ffn_norm"], EPS))
            gate, up = (h @ weights["gate_up"].T).chunk(2, dim=-1)
            x = x + self._rounded(F.silu(gate) * up) @ weights["down"].T
        return self._rounded(rms_norm(x, self.final_norm, EPS)) @ self.embedding.T

    def _attend(self, qkv: torch.Tensor) -> torch.Tensor:
        M = len(qkv)
        heads = qkv.view(M, HEADS + 2 * KV_HEADS, HEAD_DIM)
        rope(heads[:, : HEADS + KV_HEADS], self.cos_PF[:M], self.sin_PF[:M])
        q, k, v = torch.split(self._rounded(heads), [HEADS, KV_HEADS, KV_HEADS], dim=1)
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1).transpose(0, 1) for x in (k, v))
        attended = F.scaled_dot_product_attention(q.transpose(0, 1), k, v, is_causal=True)
        return self._rounded(attended.transpose(0, 1).reshape(M, HEADS * HEAD_DIM))

    def _rounded(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype).float()


class TinyPool:
    """Blocks for a tiny model, all of them holding NaN until written."""

    def __init__(self, model: TinyModel, blocks: int = 96) -> None:
        self.model = model
        elements = model.layers * 2 * KV_HEADS * model.block_tokens * HEAD_DIM
        self.kv = torch.full((blocks, elements), torch.nan, dtype=model.dtype)
        self.fill_counts = np.zeros(blocks, np.uint32)
        self.struct = HrPool(self.kv.data_ptr(), self.fill_counts.ctypes.data, blocks, model.block_tokens)

    def step(self, native: Native, rows: Sequence[Row]) -> npt.NDArray[np.float32]:
        """Logits [R, V] of each row's last token."""
        logits_RV = np.full((len(rows), VOCAB), np.nan, np.float32)
        self.run(native, rows, logits_RV)
        return logits_RV

    def run(self, native: Native, rows: Sequence[Row], logits_RV: npt.NDArray[np.float32] | None) -> list[HrRow]:
        ids = np.array([i for row in rows for i in row.ids], np.int32)
        tables = [np.array(row.table, np.int32) for row in rows]
        structs, start = (HrRow * len(rows))(), 0
        for struct, row, table in zip(structs, rows, tables, strict=True):
            struct.start, struct.tokens, struct.base, struct.draws = start, len(row.ids), row.base, row.draws
            struct.table, struct.top_p = table.ctypes.data, 1.0
            start += len(row.ids)
        code = native.library.hr_step(
            native.context,
            ctypes.addressof(self.model.struct),
            ctypes.addressof(self.struct),
            ids.ctypes.data,
            len(ids),
            ctypes.addressof(structs),
            len(rows),
            None if logits_RV is None else logits_RV.ctypes.data,
        )
        native.check(code)
        return list(structs)
