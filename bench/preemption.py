"""What giving way costs: a memory-starved stack under swap, recompute and the cheaper of the two, over two host tiers.

Each run has a stack of its own: the real model, a quarter of the KV blocks that its requests need, all of them at once.
The fast tier is memory, the slow one the same memory at so few bytes a second that computing again is the better way.
By cost should be within noise of the better fixed way over either tier, and say why it took it.

    python -m bench.preemption [--requests 32] [--prompt-tokens 16] [--new-tokens 128] [--slow-bytes 8e6] [--tiers slow]
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.client import BenchError
from cli.trace import read_store
from deploy.local.run_dir import RunDir
from services.scheduler.swap_cost import COST, RECOMPUTE, SWAP

BLOCK_TOKENS = 16
WAYS = (SWAP, RECOMPUTE, COST)
TIERS = ("fast", "slow")
START_S, REQUEST_S = 120.0, 300.0


@dataclass(frozen=True, slots=True)
class Load:
    requests: int
    prompt_tokens: int
    new_tokens: int

    @property
    def need_blocks(self) -> int:
        return self.requests * -(-(self.prompt_tokens + self.new_tokens) // BLOCK_TOKENS)

    def prompt(self, number: int) -> list[int]:
        """Nobody shares a prefix with another."""
        return [1000 + (number * 7919 + index * 31) % 20_000 for index in range(self.prompt_tokens)]


@dataclass(frozen=True, slots=True)
class Outcome:
    seconds: float
    swaps: int
    recomputes: int
    waits: int
    ids: tuple[tuple[int, ...], ...]
    why: str = ""


def why(run_dir: RunDir) -> str:
    """What the last one that gave way was told: the way taken, and what either was put at."""
    preempted = [decided for decided in read_store(run_dir).decided if decided.recompute_ns >= 0]
    if not preempted:
        return "nobody gave way"
    last = max(preempted, key=lambda decided: decided.at_ns)
    swap = f"a swap at {last.swap_ns / 1e6:.0f} ms" if last.swap_ns >= 0 else "no room for a swap"
    return f"{last.reason}: {swap}, computing again at {last.recompute_ns / 1e6:.0f} ms"


async def run(way: str, load: Load, bytes_per_s: float) -> Outcome:
    """One stack from nothing to nothing."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cli", "up", "--run-dir", folder, "--port", "0", "--prefill", "0"]
        command += ["--role", "hybrid", "--kv-blocks", str(load.need_blocks // 4)]
        command += ["--host-blocks", str(load.need_blocks), "--set", f"scheduler.preemption={way}"]
        command += ["--set", f"decode_worker.host_bytes_per_s={bytes_per_s}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert process.stdout is not None
            await asyncio.to_thread(lambda: next(line for line in process.stdout or () if "print(" in line))
            state = RunDir(Path(folder)).read_state()
            assert state is not None
            outcome = await measure(state.base_url, state.model, load)
        finally:
            process.terminate()
            process.communicate()
        return replace(outcome, why=why(RunDir(Path(folder))))


async def measure(base_url: str, model: str, load: Load) -> Outcome:
    async with httpx.AsyncClient(timeout=REQUEST_S, limits=httpx.Limits(max_connections=None)) as client:

        async def one(number: int, new_tokens: int) -> tuple[int, ...]:
            body = {"model": model, "prompt": load.prompt(number), "max_tokens": new_tokens, "temperature": 0}
            body |= {"ignore_eos": True, "return_token_ids": True}
            answer = await client.post(f"{base_url}/completions", json=body)
            if answer.status_code != httpx.codes.OK:
                raise BenchError(f"{answer.status_code}: {answer.text}")
            return tuple(answer.json()["choices"][0]["token_ids"])

        await one(load.requests, 4)  # warm
        started_s = time.perf_counter()
        ids = await asyncio.gather(*(one(number, load.new_tokens) for number in range(load.requests)))
        seconds = time.perf_counter() - started_s
        text = (await client.get(f"{base_url.removesuffix('/v1')}/metrics")).text
    return Outcome(seconds, *counted(text), tuple(ids))


def counted(text: str) -> tuple[int, int, int]:
    """(swaps, recomputes, waits) of a scrape."""
    found = {SWAP: 0, RECOMPUTE: 0, "preemption_waits": 0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "headrace_preemptions_total":
                found[sample.labels["way"]] += int(sample.value)
            elif sample.name == "headrace:scheduler_events_total" and sample.labels["event"] in found:
                found[sample.labels["event"]] += int(sample.value)
    return found[SWAP], found[RECOMPUTE], found["preemption_waits"]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--slow-bytes", type=float, default=8e6, help="a second, to and from the slow tier")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=TIERS)
    arguments = parser.parse_args()
    load = Load(arguments.requests, arguments.prompt_tokens, arguments.new_tokens)
    expected: set[tuple[tuple[int, ...], ...]] = set()
    for tier in arguments.tiers:
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way in WAYS:
                outcome = await run(way, load, arguments.slow_bytes if tier == "slow" else 0.0)
                expected.add(outcome.ids)
                seconds[way].append(outcome.seconds)
                print(
                    f"{tier} tier, {way:9}: {outcome.seconds:6.2f} s; {outcome.swaps} swapped, "
                    f"{outcome.recomputes} computed again, {outcome.waits} waited ({outcome.why})",
                    flush=True,
                )
        medians = {way: statistics.median(times) for way, times in seconds.items()}
        better = min(SWAP, RECOMPUTE, key=medians.__getitem__)
        ratio = medians[COST] / medians[better]
        print(f"{tier} tier: by cost takes {ratio:.3f} of the better fixed way, {better}")
    print("the same tokens in every run" if len(expected) == 1 else "TOKENS DIFFER between runs")


if __name__ == "__main__":
    asyncio.run(main())
