"""What grammars cost a decode step: `python -m bench.grammars [--sequences 32] [--steps 300]`.

A worker's boundary with everything real but the forward: each row draws at random from what its mask allows. Processor
time of the step thread with and without grammars, without that of drawing; the time of the masks, which are filled in
another thread beside the forward; and what the library's own batch filling takes for the same.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher

from bench.step_host import BLOCK_TOKENS, resident
from cli.models import cache_root
from libs.contracts.messages import Grammar, Hello, Resident, Snapshot
from libs.contracts.order import StandingOrder
from libs.engine.gguf_convert import ensure_default_model
from libs.engine.native.step_rows import StepRows
from libs.engine.rows import Sampled, StepRow
from libs.engine.worker.boundary import Boundary
from libs.engine.worker.grammars import WorkerGrammars
from libs.engine.worker.laps import Laps
from libs.engine.worker.residents import Residents
from libs.structured.compiling import compile_grammar
from libs.structured.resolve import resolve
from libs.structured.vocabulary import open_vocabulary
from libs.text.tokenizer import Tokenizer

BLANKS = r"[ \n\r\t]{1,16}"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "mail": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"pattern": "^[0-9]{5}$"}}},
    },
    "required": ["name", "age", "tags", "address"],
}
ENDLESS = json.dumps({"type": "array", "items": PERSON, "minItems": 1_000_000})
PEOPLE = resolve(Grammar("json_schema", ENDLESS, "response_format", BLANKS))


class NoPool:
    """Blocks that are always full; nothing is in them."""

    class Full:
        def __getitem__(self, block_id: int, /) -> int:
            return BLOCK_TOKENS

    fill_counts_N = Full()

    def reset(self, block_ids: Sequence[int]) -> None: ...

    def copy(self, source: int, target: int, tokens: int) -> None: ...


class Drawing:
    """An engine that only draws. `drawing_ns` is its own processor time, `masks_ns` how long the masks took."""

    def __init__(self, eos_id: int) -> None:
        self.drawing_ns, self.masks_ns = 0, 0
        self._rows, self._rng, self._eos_id = StepRows(BLOCK_TOKENS), random.Random(1), eos_id

    def step(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        self._rows.fill(rows)
        began_ns, before_ns = time.monotonic_ns(), time.thread_time_ns()
        for row in rows:
            how = row.sample.adjustment if row.sample else None
            while how is not None and how.mask_ready is not None and not how.mask_ready[0]:
                time.sleep(0.0001)
        self.masks_ns = time.monotonic_ns() - began_ns
        drawn: list[Sampled | None] = [Sampled(self._draw(row), None, False) for row in rows]
        self.drawing_ns = time.thread_time_ns() - before_ns
        return drawn

    def _draw(self, row: StepRow) -> int:
        how = row.sample.adjustment if row.sample else None
        return 0 if how is None or how.mask_W is None else draw(how.mask_W, self._rng, self._eos_id)


def draw(mask_W: npt.NDArray[np.uint32], rng: random.Random, eos_id: int) -> int:
    """One of the allowed ids, the end only where nothing else is. Looks at few of them: a step's data stays cached."""
    words = np.flatnonzero(mask_W)
    for index in (int(rng.choice(words)), *map(int, words[:2])):
        ids = [32 * index + bit for bit in range(32) if int(mask_W[index]) >> bit & 1]
        if others := [token_id for token_id in ids if token_id != eos_id]:
            return rng.choice(others)
    return eos_id


def worker(residents: list[Resident], engine: Drawing, grammars: WorkerGrammars, vocab_size: int) -> Boundary:
    identity = Hello("w", "decode", "ab" * 16, "h", 0, 0, "p", 1 << 20, b"f", "c", "m", 1 << 16, 1 << 16, 0, (), 16)
    pool = NoPool()
    held = Residents(
        identity,
        eos_ids=(),
        vocab_size=vocab_size,
        block_tokens=BLOCK_TOKENS,
        fill_counts=pool.fill_counts_N,
        grammars=grammars,
    )
    order = StandingOrder()
    order.reset(1, tuple(residents))
    boundary = Boundary(held, engine, pool, lambda word: None, Laps(time.monotonic_ns))
    boundary.receive([Snapshot(1, 1, tuple(residents), order.hash)])
    boundary.take()
    return boundary


def steps(boundary: Boundary, engine: Drawing, rows: int, count: int) -> tuple[list[float], list[float]]:
    """Processor ms of the step thread, and ms until all masks were there, of each step with all rows."""
    cpu_ms, masks_ms = list[float](), list[float]()
    while len(cpu_ms) < count:
        before_ns = time.thread_time_ns()
        step = boundary.rows()
        if step is None or len(step.rows) < rows:
            time.sleep(0.001)  # grammars are being compiled
            if step is not None:
                boundary.step(step)
            continue
        boundary.step(step)
        cpu_ms.append((time.thread_time_ns() - before_ns - engine.drawing_ns) / 1e6)
        masks_ms.append(engine.masks_ns / 1e6)
    return cpu_ms, masks_ms


def batch_filling(matcher: LLMatcher, rows: int, count: int, words: int, eos_id: int) -> list[float]:
    """Wall ms of the library's own filling for a batch, its consuming included."""
    executor, rng = LLExecutor(num_threads=1), random.Random(1)
    matchers, masks_RW, took_ms = [matcher.deep_copy() for _ in range(rows)], np.zeros((rows, words), np.uint32), []
    drawn: list[int] = []
    for _ in range(count):
        began_ns = time.monotonic_ns()
        if drawn:
            executor.consume_token_par(list(zip(matchers, drawn, strict=True)))
        targets = [(one, row) for row, one in enumerate(matchers)]
        executor.unsafe_compute_mask_ptr(targets, masks_RW.ctypes.data, words * 4, rows)
        took_ms.append((time.monotonic_ns() - began_ns) / 1e6)
        drawn = [draw(mask_W, rng, eos_id) for mask_W in masks_RW]
    return took_ms


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sequences", type=int, default=32)
    arguments.add_argument("--steps", type=int, default=300)
    given = arguments.parse_args()
    tokenizer = Tokenizer.from_dir(ensure_default_model(cache_root()))
    (eos_id,), size = tokenizer.eos_ids, tokenizer.vocab_size
    vocabulary = open_vocabulary(tokenizer, [eos_id], size)
    plain = [resident(number, 100, given.steps + 100) for number in range(given.sequences)]
    formed = [replace(one, params=replace(one.params, grammar=PEOPLE)) for one in plain]
    cpu_ms: dict[str, float] = {}
    for name, residents in (("free", plain), ("with grammars", formed)):
        engine, grammars = Drawing(eos_id), WorkerGrammars(lambda: vocabulary, size)
        took_ms, masks_ms = steps(worker(residents, engine, grammars, size), engine, given.sequences, given.steps)
        grammars.close()
        cpu_ms[name] = statistics.median(took_ms)
        print(f"step thread, {name}: {quantiles(took_ms)} ms of processor time a step")
    print(f"difference: {cpu_ms['with grammars'] - cpu_ms['free']:.3f} ms at {given.sequences} sequences")
    print(f"masks are there after {quantiles(masks_ms)} ms, beside the forward")
    first = compile_grammar(vocabulary, PEOPLE)
    own = batch_filling(first, given.sequences, given.steps, -(-size // 32), eos_id)
    print(f"the library's batch filling: {quantiles(own)} ms")


def quantiles(numbers: Sequence[float]) -> str:
    ordered = sorted(numbers)
    at: Callable[[float], float] = lambda share: ordered[int(share * (len(ordered) - 1))]  # noqa: E731
    return f"p50 {at(0.5):.3f}, p99 {at(0.99):.3f}"


if __name__ == "__main__":
    main()
