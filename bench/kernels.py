"""Milliseconds a native step takes at several batch sizes, beside what memory and arithmetic allow.

`python -m bench.kernels [--dtype bfloat16] [--level L] [--threads 2] [--tokens 1 8 32] [--context 16] [--rounds 15]`

Random weights of the default model's shapes; every row feeds one token after `context` − 1 others and draws greedily.
The batch sizes take turns, round after round, so that they share a busy machine's luck.
"""

import argparse
import ctypes
import mmap
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from kernels.native.library import load
from kernels.native.structs import DTYPES, HrLayer, HrLinear, HrModel, HrPool, HrRow
from kernels.segments import even_cuts

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 30, 576, 9, 3, 64, 1536, 49152
LAYER_PARAMETERS = HIDDEN * ((2 * HEADS + 2 * KV_HEADS) * HEAD_DIM + 3 * FFN)
BLOCK_TOKENS = 16
READ_BYTES = 256 << 20
HUGE_PAGE_BYTES = 2 << 20


class Bench:
    """A model of random weights over a pool in which every row has blocks of its own."""

    def __init__(self, level: str | None, dtype: str, threads: int, rows: int, context: int) -> None:
        self.library, self.dtype = load(level), dtype
        self.team = self.library.hr_open(threads)
        self._held: list[Any] = []
        self._layers = (HrLayer * LAYERS)(*(self._layer() for _ in range(LAYERS)))
        self._embedding = self._linear(VOCAB, HIDDEN)
        self.weight_bytes = sum(int(array.nbytes) for array in self._held if array.dtype == np.uint8)
        tables = [self._keep(np.ones((context, HEAD_DIM // 2), np.float32)) for _ in range(2)]
        head, norm = ctypes.addressof(self._embedding), self._norm()
        numbers = (LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, context, DTYPES[dtype], 0)
        layers = ctypes.addressof(self._layers)
        self.model = HrModel(*numbers, 1e-5, HEAD_DIM**-0.5, head, layers, norm, head, *tables)
        self._each = -(-context // BLOCK_TOKENS)
        kv_bytes = LAYERS * 2 * KV_HEADS * BLOCK_TOKENS * HEAD_DIM * (4 if dtype == "float32" else 2)
        kv = self._keep(np.zeros(rows * self._each * kv_bytes, np.int8))
        fills = self._keep(np.zeros(rows * self._each, np.uint32))
        self.pool = HrPool(kv, fills, rows * self._each, BLOCK_TOKENS)
        self.context = context

    def step_ms(self, rows: int) -> float:
        ids = np.arange(rows, dtype=np.int32)
        tables = np.arange(rows * self._each, dtype=np.int32)
        structs = (HrRow * rows)()
        for i, row in enumerate(structs):
            row.start, row.tokens, row.base, row.draws, row.top_p = i, 1, self.context - 1, 1, 1.0
            row.table = tables.ctypes.data + 4 * self._each * i
        at = tuple(map(ctypes.addressof, (self.model, self.pool)))
        begin = time.perf_counter()
        code = self.library.hr_step(self.team, *at, ids.ctypes.data, rows, ctypes.addressof(structs), rows, None)
        taken_ms = (time.perf_counter() - begin) * 1e3
        assert code == 0, self.library.hr_error(code)
        return taken_ms

    def _layer(self) -> HrLayer:
        width, kv_width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        return HrLayer(
            attention_norm=self._norm(),
            qkv=self._linear(width + 2 * kv_width, HIDDEN),
            o=self._linear(HIDDEN, width, tuple(range(0, width + 1, width // KV_HEADS))),
            ffn_norm=self._norm(),
            gate_up=self._linear(2 * FFN, HIDDEN),
            down=self._linear(HIDDEN, FFN, even_cuts(FFN)),
        )

    def _linear(self, n: int, k: int, cuts: tuple[int, ...] = ()) -> HrLinear:
        source = np.random.default_rng(0).standard_normal((n, k), np.float32) / np.float32(k**0.5)
        bounds = np.array(cuts or (0, k), np.int32)
        linear = HrLinear(None, None, self._keep(bounds), len(bounds) - 1, n, k, DTYPES[self.dtype])
        packed = _huge(self.library.hr_packed_bytes(ctypes.addressof(linear)))
        self.library.hr_pack_linear(self.team, source.ctypes.data, 0, ctypes.addressof(linear), packed.ctypes.data)
        linear.data = self._keep(packed)
        return linear

    def _norm(self) -> int:
        return self._keep(np.ones(HIDDEN, np.float32))

    def _keep(self, array: "np.ndarray[Any, Any]") -> int:
        self._held.append(array)
        return array.ctypes.data


def _huge(size_bytes: int) -> "np.ndarray[Any, Any]":
    """Memory in huge pages, as an engine's weights lie."""
    memory = mmap.mmap(-1, size_bytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    first = -array.ctypes.data % HUGE_PAGE_BYTES
    return array[first : first + size_bytes]


def read_bandwidth(threads: int) -> float:
    """GB/s that plain reads reach, best of five."""
    parts = np.ones(READ_BYTES // 8 * threads, np.int64).reshape(threads, -1)
    best_s = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            begin = time.perf_counter()
            list(pool.map(np.max, parts))
            best_s = min(best_s, time.perf_counter() - begin)
    return parts.nbytes / best_s / 1e9


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--dtype", default="bfloat16", choices=DTYPES)
    arguments.add_argument("--level")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--tokens", type=int, nargs="+", default=[1, 8, 32, 256])
    arguments.add_argument("--context", type=int, default=16)
    arguments.add_argument("--rounds", type=int, default=15)
    given = arguments.parse_args()
    bench = Bench(given.level, given.dtype, given.threads, max(given.tokens), given.context)
    gb_per_s = read_bandwidth(given.threads)
    taken: dict[int, list[float]] = {tokens: [] for tokens in given.tokens}
    for tokens in given.tokens:
        bench.step_ms(tokens)
    for _ in range(given.rounds):
        for tokens in given.tokens:
            taken[tokens].append(bench.step_ms(tokens))
    parameters = LAYERS * LAYER_PARAMETERS + VOCAB * HIDDEN
    print(f"{bench.library.hr_level().decode()} {given.dtype}, {given.threads} threads, reads {gb_per_s:.1f} GB/s")
    print("tokens  median ms   best ms   weights GB/s   GFLOP/s   ms to read the weights")
    for tokens, times in taken.items():
        median, best = statistics.median(times), min(times)
        print(
            f"{tokens:6d} {median:10.2f} {best:9.2f} {bench.weight_bytes / median / 1e6:14.1f}"
            f" {2 * parameters * tokens / median / 1e6:9.0f} {bench.weight_bytes / gb_per_s / 1e6:24.1f}"
        )


if __name__ == "__main__":
    main()
