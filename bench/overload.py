"""What too many requests do: how many are served all the same, what the others are told, how soon all is well again.

An open-loop client: requests come at fixed times, whatever became of those before. Behind the pipeline is the fake
engine, so that capacity is a setting and not the machine's; `--base-url` measures a stack that runs.

    python -m bench.overload
    python -m bench.overload --base-url http://127.0.0.1:8000 --model SmolLM2-135M-Instruct
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.integration.pipeline import MODEL, pipeline

PROMPT_TOKENS, NEW_TOKENS = 24, 32
STEP_S, MAX_RUNNING, BLOCKS = 0.05, 12, 512
SHORT_QUEUE = 16  # about as many as run
PROBES, PROBE_S = 50, 0.2  # of one token each: they cost little, and none waits for another
SETTLE_S = 5.0  # at the start of the overload, while the queue fills: not counted as goodput's time


@dataclass(slots=True)
class Outcome:
    sent_s: float
    new_tokens: int
    status: int = 0  # 0: no answer
    first_s: float = 0.0
    done_s: float = 0.0
    tokens: int = 0
    retry_after_ms: int = 0

    @property
    def served(self) -> bool:
        return self.status == 200 and self.tokens == self.new_tokens


@dataclass(slots=True)
class Target:
    base_url: str
    model: str
    processes: dict[str, psutil.Process] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        """Note how much memory each process has."""
        for name, process in self.processes.items():
            self.peak_mb[name] = max(self.peak_mb.get(name, 0.0), process.memory_info().rss / 1e6)


async def one(client: httpx.AsyncClient, target: Target, number: int, new_tokens: int = NEW_TOKENS) -> Outcome:
    outcome = Outcome(time.monotonic(), new_tokens)
    prompt = [100 + (number * 37 + index) % 800 for index in range(PROMPT_TOKENS)]
    body = {"model": target.model, "prompt": prompt, "max_tokens": new_tokens, "ignore_eos": True, "stream": True}
    with contextlib.suppress(httpx.TransportError):
        async with client.stream("POST", "/v1/completions", json=body | {"return_token_ids": True}) as response:
            outcome.status = response.status_code
            outcome.retry_after_ms = int(response.headers.get("retry-after-ms", 0))
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    outcome.first_s = outcome.first_s or time.monotonic()
                    outcome.tokens += sum(
                        len(c.get("token_ids") or ()) for c in json.loads(line[6:]).get("choices", ())
                    )
    outcome.done_s = time.monotonic()
    return outcome


async def capacity(client: httpx.AsyncClient, target: Target, seconds: float) -> float:
    """Requests a second that are served when there is always just enough to do."""
    outcomes: list[Outcome] = []

    async def again(number: int) -> None:
        while time.monotonic() < end_s:
            outcomes.append(await one(client, target, number + 1000 * len(outcomes)))

    start_s = time.monotonic()
    end_s = start_s + seconds
    await asyncio.gather(*(again(number) for number in range(MAX_RUNNING + 8)))
    begun_s = start_s + seconds / 4
    return sum(o.served and begun_s < o.done_s <= end_s for o in outcomes) / (end_s - begun_s)


async def offered(client: httpx.AsyncClient, target: Target, per_s: float, seconds: float) -> list[Outcome]:
    """Requests at fixed times."""
    tasks = []
    start_s = time.monotonic()
    for number in range(int(per_s * seconds)):
        await asyncio.sleep(max(0.0, start_s + number / per_s - time.monotonic()))
        tasks.append(asyncio.create_task(one(client, target, number)))
        if number % 50 == 0:
            target.look()
    return await asyncio.gather(*tasks)


async def recovery_s(client: httpx.AsyncClient, target: Target, usual_ttft_s: float, load_end_s: float) -> float:
    """Seconds after the last request of the overload until one that is sent is answered as on an idle day (twice its
    TTFT): what then waits, `max_wait_s` at most, has begun.
    """
    probes: list[asyncio.Task[Outcome]] = []

    def recovered() -> list[float]:
        seen = [probe.result() for probe in probes if probe.done()]
        usual = [o for o in seen if o.served and o.first_s - o.sent_s <= 2 * usual_ttft_s + 0.1]
        return [o.sent_s - load_end_s for o in usual]

    while not recovered() and len(probes) < PROBES:
        probes.append(asyncio.create_task(one(client, target, len(probes), new_tokens=1)))
        await asyncio.sleep(PROBE_S)
    await asyncio.gather(*probes)
    return min(recovered(), default=float("inf"))


async def measure(target: Target, *, times: float, seconds: float) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=target.base_url, timeout=120, limits=limits) as client:
        idle = [await one(client, target, number) for number in range(5)]
        ttft_s = statistics.median(o.first_s - o.sent_s for o in idle)
        target.look()
        before_mb = dict(target.peak_mb)
        served_per_s = await capacity(client, target, 10.0)
        start_s = time.monotonic()
        loading = asyncio.create_task(offered(client, target, times * served_per_s, seconds))
        await asyncio.sleep(seconds)
        recovered_s = await recovery_s(client, target, ttft_s, start_s + seconds)
        outcomes = await loading
        target.look()
    print(f"capacity             {served_per_s:8.1f} requests/s of {PROMPT_TOKENS} + {NEW_TOKENS} tokens")
    print(f"TTFT when idle       {ttft_s:8.3f} s")
    report(outcomes, served_per_s, start_s, seconds)
    print(f"recovery             {recovered_s:8.1f} s after the load ended")
    for name, peak_mb in target.peak_mb.items():
        print(f"memory {name:14}{before_mb[name]:8.0f} MB before, {peak_mb:.0f} MB at most")


def report(outcomes: Sequence[Outcome], served_per_s: float, start_s: float, seconds: float) -> None:
    within = (start_s + SETTLE_S, start_s + seconds)
    good = sum(o.served and within[0] < o.done_s <= within[1] for o in outcomes) / (seconds - SETTLE_S)
    ttfts = sorted(o.first_s - o.sent_s for o in outcomes if o.served)
    refusals = [o for o in outcomes if o.status in (429, 503)]
    answers = sorted(o.done_s - o.sent_s for o in refusals)
    broken = sum(not o.served and o.status not in (429, 503) for o in outcomes)
    print(f"offered              {len(outcomes) / seconds:8.1f} requests/s for {seconds:.0f} s")
    print(f"goodput              {good:8.1f} requests/s, {100 * good / served_per_s:.0f} % of capacity")
    print(f"TTFT of the served   {_at(ttfts, 0.5):8.2f} s p50, {_at(ttfts, 0.99):.2f} s p99")
    print(f"statuses             {dict(Counter(o.status for o in outcomes))}, {broken} accepted and not finished")
    print(f"refused within       {1000 * _at(answers, 0.5):8.0f} ms p50, {1000 * _at(answers, 0.99):.0f} ms p99")
    told = sorted(o.retry_after_ms / 1000 for o in refusals)
    print(f"retry-after          {_at(told, 0.0):8.1f} to {_at(told, 1.0):.1f} s")


def _at(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


@contextlib.asynccontextmanager
async def fake_stack() -> AsyncIterator[Target]:
    with tempfile.TemporaryDirectory() as folder:
        async with pipeline(
            Path(folder), scheduler={"max_running": MAX_RUNNING}, gateway={"short_queue": SHORT_QUEUE}
        ) as running:
            running.start_worker(step_s=STEP_S, blocks=BLOCKS)
            await running.ready()
            processes = {name: psutil.Process(process.pid) for name, process in running.processes.items()}
            yield Target(running.base_url, MODEL, processes)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", default="", help="of a stack that runs, without /v1; default: a fake engine")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--times", type=float, default=3.0, help="how much of the capacity is offered")
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    if given.base_url:
        await measure(Target(given.base_url, given.model), times=given.times, seconds=given.seconds)
        return
    async with fake_stack() as target:
        await measure(target, times=given.times, seconds=given.seconds)


if __name__ == "__main__":
    asyncio.run(main())
