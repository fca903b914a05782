"""Python time of a decode step, `step_host_ms`: `python -m bench.step_host [--sequences 8] [--context 1000]`.

A worker's boundary with everything real but the kernels, which return at once: what is left is what Python costs.
"""

import argparse
import statistics
import time
from typing import Any

from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import Hello, Resident, SamplingParams, Snapshot
from libs.contracts.order import StandingOrder
from libs.engine.native.engine import NativeEngine
from libs.engine.native.kernels import Kernels
from libs.engine.native.loading import pack_private
from libs.engine.native.pool import NativePool
from libs.engine.native.probe import CONFIG, checkpoint
from libs.engine.worker.boundary import Boundary
from libs.engine.worker.laps import Laps
from libs.engine.worker.residents import Residents
from libs.engine.worker.step_values import StepReport

BLOCK_TOKENS = 16


class InstantLibrary:
    """The functions of the kernels, which do nothing: every row draws token 0."""

    def hr_open(self, threads: int, /) -> int:
        return 1

    def hr_close(self, context: int, /) -> None:
        pass

    def hr_packed_bytes(self, weight: int, /) -> int:
        return 64

    def hr_pack_linear(self, *arguments: int) -> int:
        return 0

    def hr_step(self, *arguments: int) -> int:
        return 0

    def hr_watch(self, context: int, ns: int, /) -> None:
        pass

    def hr_op(self, op: int, /) -> bytes | None:
        return None

    def hr_error(self, code: int, /) -> bytes:
        return b""


def resident(number: int, context: int, steps: int) -> Resident:
    blocks = blocks_for(context + steps, BLOCK_TOKENS)
    return Resident(
        sequence=number,
        request_id=f"r{number}",
        choice=0,
        epoch=1,
        gateway="g0",
        ids=(1,) * context,
        prompt_tokens=context,
        cursor=context - 1,
        block_table=tuple(range(number * blocks, (number + 1) * blocks)),
        until=steps + 1,
        params=SamplingParams(max_tokens=steps + 1, ignore_eos=True),
        cached_tokens=0,
        traceparent="",
    )


def boundary(residents: list[Resident], post: Any) -> Boundary:
    """A worker whose order holds these."""
    kernels = Kernels(InstantLibrary(), 1)
    blocks = sum(len(resident.block_table) for resident in residents)
    pool = NativePool.private(CONFIG.kv_layout(BLOCK_TOKENS, "float32"), blocks)
    pool.fill_counts_N[:] = BLOCK_TOKENS
    engine = NativeEngine(kernels, pack_private(kernels, CONFIG, checkpoint(), "float32"), pool)
    identity = Hello(
        worker="w",
        role="decode",
        incarnation="ab" * 16,
        host="h",
        term=0,
        version=0,
        pool="p",
        pool_blocks=blocks,
        block_tokens=BLOCK_TOKENS,
        layout_fingerprint=pool.layout.fingerprint,
        numerics_class="c",
        model_digest="m",
        max_model_len=1 << 16,
        max_batch_tokens=1 << 16,
        step_number=0,
        residents=(),
    )
    held = Residents(
        identity, eos_ids=(), vocab_size=1 << 20, block_tokens=BLOCK_TOKENS, fill_counts=pool.fill_counts_N
    )
    order = StandingOrder()
    order.reset(1, tuple(residents))
    whole = Boundary(held, engine, pool, post, Laps(time.monotonic_ns))
    whole.receive([Snapshot(1, 1, tuple(residents), order.hash)])
    assert whole.take()
    pool.fill_counts_N[:] = BLOCK_TOKENS  # taking the order reset what it granted
    return whole


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sequences", type=int, default=8)
    arguments.add_argument("--context", type=int, default=1000)
    arguments.add_argument("--steps", type=int, default=500)
    given = arguments.parse_args()
    reports: list[Any] = []
    worker = boundary([resident(n, given.context, given.steps) for n in range(given.sequences)], reports.append)
    took_ms = []
    for _ in range(given.steps):
        started_s = time.perf_counter()
        step = worker.rows()
        assert step is not None and len(step.rows) == given.sequences
        worker.step(step)
        took_ms.append((time.perf_counter() - started_s) * 1e3)
    assert sum(isinstance(report, StepReport) for report in reports) == given.steps
    took_ms.sort()
    p50, p99 = statistics.median(took_ms), took_ms[int(0.99 * len(took_ms))]
    print(f"step_host_ms: p50 {p50:.3f}, p99 {p99:.3f} ({given.sequences} sequences, {given.context} tokens each)")


if __name__ == "__main__":
    main()
