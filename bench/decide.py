"""What the scheduler's core costs: CPU time per reported step, and of prefix caching per request without any reuse.

`python -m bench.decide`. A step is one StepResult in which every resident draws a token, with all that follows from it:
blocks into the prefix tree, grants, orders, and the worker's Began. A request is a long prompt that nobody asks twice,
with caching on and off, its block hashes included; with `--run-dir DIR` of a stack that is up also the share of what
that stack spends on such a request.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path

from bench.trace_cost import of_stack
from deploy.local.run_dir import RunDir
from libs.contracts import block_hash
from libs.contracts.messages import (
    Alive,
    Began,
    Delivered,
    Delta,
    Hello,
    RowResult,
    SamplingParams,
    Sequence,
    Snapshot,
    StepResult,
)
from services.scheduler import tables
from services.scheduler.choice import Choice
from services.scheduler.event_log import EventLog
from services.scheduler.events import Arrived, Asked, AskHost, Event, Listed, Send
from services.scheduler.eviction import Caching
from services.scheduler.plan import turn
from services.scheduler.state import DECODE, Policy, State

LIMITS_MS = {256: 1.0, 32: 0.2}  # residents → CPU time of a step
TREE_BLOCKS = 100_000
BLOCK_TOKENS = 16
POOL_BLOCKS = 150_000
STEP_S = 0.02
ALIVE_EVERY_STEPS = 12
PROMPT_TOKENS = 1500
NEW_TOKENS = 16
VOCABULARY = 49_152
LIFE, GATEWAY = "bench-life", "bench-gateway"
HASH_KEY = b"bench"


class Cell:
    """The core with one worker that does at once what it is told. Only the core's time counts."""

    def __init__(self, residents: int, *, caching: Caching, log: bool = False, file: Path | None = None) -> None:
        policy = Policy("c0", "m", max_running=2 * residents, caching=caching)  # one tenant never gets all
        self.state = State(policy, 1)
        self.spent_ns = 0
        self._now_s = 1000.0
        self._step = self._version = 0
        self._random = random.Random(1)
        self._rows: dict[int, list[int]] = {}  # handle → known, cursor, position, table's blocks, until
        self._chunks: dict[int, int] = {}
        self._orders: deque[Snapshot | Delta] = deque()
        self._log = EventLog(policy, 1, None if file is None else file.open("wb")) if log else None
        self._turn(
            Hello("w", DECODE, LIFE, "h", 0, 0, "p", POOL_BLOCKS, b"f", "n", "d", 1 << 20, 4096, 0, (), BLOCK_TOKENS)
        )

    def arrive(self, number: int, ids: tuple[int, ...], new_tokens: int, hashes: tuple[bytes, ...] = ()) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        sequence = Sequence(f"r{number}", 1, GATEWAY, "m", "t", ids, hashes, params, 1, 1 << 50)
        self._turn(Arrived(sequence, ""))

    def deliver(self, number: int) -> None:
        self._turn(Asked(0, Delivered(f"r{number}", (NEW_TOKENS,))))

    def step(self) -> None:
        """Take one order, then every row that may advances, and the core hears of both."""
        if self._orders:
            self._obey(self._orders.popleft())
        rows, tokens = [], 0
        for handle, row in self._rows.items():
            known, cursor, position, blocks, until = row
            count = 1 if known - cursor == 1 else min(self._chunks.get(handle, 0), known - cursor)
            if not count or position == until or cursor + count > blocks * BLOCK_TOKENS:
                continue
            tokens += count
            row[1] = cursor + count
            ids: tuple[int, ...] = ()
            if row[1] == known:
                ids = (self._random.randrange(VOCABULARY),)
                row[0], row[2] = known + 1, position + 1
            end = "length" if row[2] == until and ids else ""
            rows.append(RowResult(handle, 1, row[1], position, ids, (), end, bool(end)))
        self._chunks.clear()
        self._report(tuple(rows), tokens)

    def _report(self, rows: tuple[RowResult, ...], tokens: int) -> None:
        self._step += 1
        if self._step % ALIVE_EVERY_STEPS == 0:
            self._turn(Alive(GATEWAY))
        self._now_s += STEP_S
        at_ns = int(self._now_s * 1e9)
        self._turn(
            StepResult(LIFE, 1, self._version, self._step, rows, (), (), 0, tokens, at_ns - int(STEP_S * 1e9), at_ns)
        )

    def _turn(self, *events: Event) -> None:
        started_ns = time.process_time_ns()
        if self._log is not None:
            self._log.append(self._now_s, events)
        commands = turn(self.state, events, self._now_s)
        self.spent_ns += time.process_time_ns() - started_ns
        self.state.take_journal()
        for command in commands:
            if isinstance(command, Send) and isinstance(command.message, Snapshot | Delta):
                self._orders.append(command.message)
            elif isinstance(command, AskHost):
                self._turn(Listed(command.host, (LIFE,)))

    def _obey(self, order: Snapshot | Delta) -> None:
        if isinstance(order, Delta):
            for handle in order.removed:
                del self._rows[handle]
            for resident in order.added:
                self._rows[resident.sequence] = [
                    len(resident.ids),
                    resident.cursor,
                    0,
                    len(resident.block_table),
                    resident.until,
                ]
            for grant in order.grants:
                self._rows[grant.sequence][3] += len(grant.block_ids)
            for chunk in order.chunks:
                self._chunks[chunk.sequence] = chunk.tokens
        self._version = order.version
        self._turn(Began(LIFE, 1, order.version))


def fill(state: State, blocks: int) -> None:
    """Cache so many blocks more: prompts of 50 blocks, a fifth of which each shares with a hundredth of the others."""
    draw, memory, size = random.Random(2), state.memory, 50
    openings = [_tokens(draw, 10 * BLOCK_TOKENS) for _ in range(100)]
    there = len(memory.pool.cached)
    while len(memory.pool.cached) < there + blocks:
        ids = (*draw.choice(openings), *_tokens(draw, 40 * BLOCK_TOKENS))
        sequence = Sequence("filler", 1, GATEWAY, "m", "t", ids, (), SamplingParams(), 1, 1 << 50)
        choice = Choice(state.next_handle(), sequence, "", list(ids), sequence.params, 0.0, 1)
        hit = tables.match(memory, choice)
        tables.reserve(memory, choice, hit, size - len(hit.blocks), None)
        tables.copied(memory, choice)
        tables.commit(memory, choice, len(ids))
        tables.release(memory, choice)


def step_ms(residents: int, steps: int, file: Path | None, *, log: bool) -> float:
    """CPU milliseconds of a reported step with so many decoding residents, median of ten windows."""
    cell = Cell(residents, caching=Caching(), log=log, file=file)
    fill(cell.state, TREE_BLOCKS)
    draw = random.Random(3)
    for number in range(residents):
        cell.arrive(number, _tokens(draw, draw.randrange(40, 300)), 1 << 19)
    while any(len(choice.ids) - choice.cursor > 1 for choice in cell.state.choices.values()):
        cell.step()
    assert len(cell.state.running) == residents
    windows = []
    for _ in range(10):
        cell.spent_ns = 0
        for _ in range(steps // 10):
            cell.step()
        windows.append(cell.spent_ns / (steps // 10) / 1e6)
    return statistics.median(windows)


def request_us(requests: int, *, is_on: bool) -> float:
    """CPU microseconds of the core, and of hashing, for a prompt that shares nothing, in a pool full of prefixes."""
    cell, draw = Cell(64, caching=Caching(is_on)), random.Random(4)
    if is_on:
        fill(cell.state, POOL_BLOCKS - 200)
    root = block_hash.root_hash(HASH_KEY, tenant="t", model_digest="d", adapter="", tokenizer_digest="t")
    spent_ns = []
    for number in range(requests):
        ids = _tokens(draw, PROMPT_TOKENS)
        started_ns, cell.spent_ns = time.process_time_ns(), 0
        hashes = block_hash.block_hashes(HASH_KEY, root, ids, BLOCK_TOKENS) if is_on else ()
        hashing_ns = time.process_time_ns() - started_ns
        cell.arrive(number, ids, NEW_TOKENS, hashes)
        while cell.state.running:
            cell.step()
        cell.deliver(number)
        spent_ns.append(hashing_ns + cell.spent_ns)
    return statistics.median(spent_ns) / 1e3


def _tokens(draw: random.Random, count: int) -> tuple[int, ...]:
    return tuple(draw.randrange(VOCABULARY) for _ in range(count))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--run-dir", type=Path)
    arguments.add_argument("--steps", type=int, default=1000)
    arguments.add_argument("--requests", type=int, default=100)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for residents, limit_ms in LIMITS_MS.items():
            plain = step_ms(residents, options.steps, None, log=False)
            kept = step_ms(residents, options.steps, None, log=True)
            written = step_ms(residents, options.steps, Path(directory, f"{residents}.log"), log=True)
            print(
                f"{residents} residents, {TREE_BLOCKS:,} cached blocks: {plain:.3f} ms a step, limit {limit_ms} ms"
                f"; with an event log in memory {kept:.3f} ms, in a file {written:.3f} ms"
            )
    on_us, off_us = request_us(options.requests, is_on=True), request_us(options.requests, is_on=False)
    caching_us = on_us - off_us
    print(f"{PROMPT_TOKENS:,} tokens that share nothing, {NEW_TOKENS} drawn: {on_us:,.0f} µs, {off_us:,.0f} without")
    if options.run_dir is not None:
        state = RunDir(options.run_dir.absolute()).live_state()
        if state is None:
            raise SystemExit(f"nothing runs in {options.run_dir}")
        whole_s = of_stack(state, 8, PROMPT_TOKENS, NEW_TOKENS)
        share = caching_us / 1e6 / whole_s
        print(f"the stack: {whole_s:,.2f} s of CPU a request; caching is {share:.3%} of it, limit 0.5%")


if __name__ == "__main__":
    main()
