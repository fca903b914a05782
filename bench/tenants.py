"""What one tenant's flood does to the other tenants: their times beside those of an ordinary day, and what is left of
their prefixes.

On an ordinary day four tenants send requests at fixed times, each with a prefix of its own. Then one of them floods,
from many connections, each of which sends its next request when the last has ended: many requests, many tokens, or
prefixes that nobody has twice. Behind the pipeline is the fake engine, whose steps take the same time whatever is in
them, so that what is seen is decided and not computed; `--base-url` measures a stack that runs, with the keys of four
tenants in HR_BENCH_KEYS, separated by commas; the last one's floods.

    python -m bench.tenants
    python -m bench.tenants --base-url http://127.0.0.1:8000 --model SmolLM2-135M-Instruct --per-s 0.5
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from libs.runtime import api_keys
from tests.integration.pipeline import MODEL, pipeline

STEP_S, MAX_RUNNING, BLOCKS = 0.05, 16, 1024
PREFIX_TOKENS, OWN_TOKENS, NEW_TOKENS = 160, 24, 16  # of an ordinary request
TENANTS, PER_S = 4, 3.0
SETTLE_S = 2.0  # of the flood, before the others' requests count
PAUSE_S = 0.1  # of a connection that was refused
LIMIT = 1.5  # times the p95 of an ordinary day
FIRST_ID, IDS = 100, 800


@dataclass(frozen=True, slots=True)
class Flood:
    name: str
    connections: int
    prompt_tokens: int
    new_tokens: int


FLOODS = (
    Flood("requests", connections=64, prompt_tokens=24, new_tokens=16),
    Flood("tokens", connections=24, prompt_tokens=600, new_tokens=200),
    Flood("prefixes", connections=32, prompt_tokens=240, new_tokens=4),
)


@dataclass(slots=True)
class Outcome:
    sent_s: float
    status: int = 0  # 0: no answer
    first_s: float = 0.0
    done_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0

    @property
    def served(self) -> bool:
        return self.status == 200 and self.tokens > 0


@dataclass(frozen=True, slots=True)
class Load:
    """Of each tenant on an ordinary day."""

    per_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Target:
    base_url: str
    model: str
    keys: tuple[str, ...]  # one per tenant; the last one's floods

    @property
    def others(self) -> tuple[str, ...]:
        return self.keys[:-1]


@dataclass(frozen=True, slots=True)
class Seen:
    """What those who do not flood saw in one phase."""

    ttft_p95_s: float
    e2e_p95_s: float
    cached: float  # share of its prompt tokens
    refused: int


def unique_prompts(tokens: int) -> Iterator[list[int]]:
    """No two begin alike."""
    for number in itertools.count():
        yield [
            FIRST_ID + (number // IDS**place) % IDS if place < 3 else FIRST_ID + place % IDS for place in range(tokens)
        ]


async def one(client: httpx.AsyncClient, target: Target, key: str, prompt: list[int]) -> Outcome:
    """An ordinary request, streamed."""
    outcome = Outcome(time.monotonic())
    body = {"model": target.model, "prompt": prompt, "max_tokens": NEW_TOKENS, "ignore_eos": True, "stream": True}
    body |= {"return_token_ids": True, "stream_options": {"include_usage": True}}
    headers = {"authorization": f"Bearer {key}"}
    with contextlib.suppress(httpx.TransportError):
        async with client.stream("POST", "/v1/completions", json=body, headers=headers) as response:
            outcome.status = response.status_code
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    _take(outcome, json.loads(line[6:]))
    outcome.done_s = time.monotonic()
    return outcome


async def one_of_many(client: httpx.AsyncClient, target: Target, prompt: list[int], new_tokens: int) -> Outcome:
    """A request of the flood, answered in one piece: reading it must not be what slows the others down."""
    outcome = Outcome(time.monotonic())
    body = {"model": target.model, "prompt": prompt, "max_tokens": new_tokens, "ignore_eos": True}
    headers = {"authorization": f"Bearer {target.keys[-1]}"}
    with contextlib.suppress(httpx.TransportError):
        response = await client.post("/v1/completions", json=body, headers=headers)
        outcome.status = response.status_code
        if outcome.status == 200:
            outcome.tokens = response.json()["usage"]["completion_tokens"]
    return outcome


async def ordinary(client: httpx.AsyncClient, target: Target, load: Load, keys: Sequence[str]) -> list[Outcome]:
    """Requests of these tenants at fixed times, taking turns, whatever became of those before."""
    tasks, start_s = [], time.monotonic()
    per_s = load.per_s * len(keys)
    for number, own in zip(range(int(per_s * load.seconds)), unique_prompts(OWN_TOKENS), strict=False):
        await asyncio.sleep(max(0.0, start_s + number / per_s - time.monotonic()))
        tenant = number % len(keys)
        prefix = [FIRST_ID + IDS // 2 + (place + tenant) % 7 for place in range(PREFIX_TOKENS)]
        tasks.append(asyncio.create_task(one(client, target, keys[tenant], prefix + own)))
    return await asyncio.gather(*tasks)


@contextlib.asynccontextmanager
async def flooding(client: httpx.AsyncClient, target: Target, flood: Flood) -> AsyncIterator[list[Outcome]]:
    """The flood runs while the block does; what became of its requests."""
    outcomes: list[Outcome] = []
    prompts = unique_prompts(flood.prompt_tokens)

    async def again() -> None:
        while True:
            outcome = await one_of_many(client, target, next(prompts), flood.new_tokens)
            outcomes.append(outcome)
            if not outcome.served:
                await asyncio.sleep(PAUSE_S)

    tasks = [asyncio.create_task(again()) for _ in range(flood.connections)]
    try:
        yield outcomes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(target: Target, load: Load) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=target.base_url, timeout=120, limits=limits) as client:
        await ordinary(client, target, replace(load, seconds=4.0), target.keys)  # prefixes are cached, and rates known
        alone = seen(await ordinary(client, target, load, target.others[:1]))
        usual = seen(_of_others(target, await ordinary(client, target, load, target.keys)))
        print(f"{'':10}  TTFT p95          E2E p95           cached  refused   flood: served/s  tokens/s  refused")
        report("alone", alone, usual, "")
        report("ordinary", usual, usual, "")
        for flood in FLOODS:
            async with flooding(client, target, flood) as outcomes:
                await asyncio.sleep(SETTLE_S)
                before, start_s = len(outcomes), time.monotonic()
                beside = seen(await ordinary(client, target, load, target.others))
                spent_s = time.monotonic() - start_s
                told = outcomes[before:]
            served = sum(outcome.served for outcome in told) / spent_s
            tokens = sum(outcome.tokens for outcome in told) / spent_s
            refused = sum(outcome.status in (429, 503) for outcome in told)
            report(flood.name, beside, usual, f"{served:15.1f}{tokens:10.0f}{refused:9}")
            await asyncio.sleep(SETTLE_S)


def _of_others(target: Target, outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for number, outcome in enumerate(outcomes) if (number + 1) % len(target.keys)]


def seen(outcomes: Sequence[Outcome]) -> Seen:
    served = [outcome for outcome in outcomes if outcome.served]
    prompt_tokens = sum(outcome.prompt_tokens for outcome in served)
    return Seen(
        _p95([outcome.first_s - outcome.sent_s for outcome in served]),
        _p95([outcome.done_s - outcome.sent_s for outcome in served]),
        sum(outcome.cached_tokens for outcome in served) / max(1, prompt_tokens),
        len(outcomes) - len(served),
    )


def report(name: str, beside: Seen, usual: Seen, flood: str) -> None:
    first, whole = beside.ttft_p95_s / usual.ttft_p95_s, beside.e2e_p95_s / usual.e2e_p95_s
    kept = "" if max(first, whole) <= LIMIT and not beside.refused else f"  over {LIMIT}"
    print(
        f"{name:10}{1000 * beside.ttft_p95_s:8.0f} ms {first:5.2f} x{1000 * beside.e2e_p95_s:8.0f} ms {whole:5.2f} x"
        f"{100 * beside.cached:9.0f} %{beside.refused:9}  {flood}{kept}"
    )


def _take(outcome: Outcome, event: dict[str, object]) -> None:
    choices, usage = event.get("choices"), event.get("usage")
    for choice in choices if isinstance(choices, list) else ():
        if ids := choice.get("token_ids"):
            outcome.first_s = outcome.first_s or time.monotonic()
            outcome.tokens += len(ids)
    if isinstance(usage, dict):
        outcome.prompt_tokens = usage["prompt_tokens"]
        outcome.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))] if values else float("nan")


@contextlib.asynccontextmanager
async def fake_stack() -> AsyncIterator[Target]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.json"
        keys = tuple(api_keys.add(path, f"tenant-{number}")[0] for number in range(TENANTS))
        # However slow steps are, a chunk of a prompt is not what makes them so.
        scheduler: dict[str, object] = {"max_running": MAX_RUNNING, "chunk_target_ms": 1000, "itl_target_ms": 1000}
        async with pipeline(Path(folder), scheduler=scheduler, gateway={"keys_path": path}) as running:
            running.start_worker(step_s=STEP_S, blocks=BLOCKS)
            await running.ready()
            yield Target(running.base_url, MODEL, keys)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", default="", help="of a stack that runs, without /v1; default: a fake engine")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each of the five phases")
    parser.add_argument("--per-s", type=float, default=PER_S, help="requests of each tenant on an ordinary day")
    given = parser.parse_args()
    load = Load(given.per_s, given.seconds)
    if given.base_url:
        await measure(Target(given.base_url, given.model, tuple(os.environ["HR_BENCH_KEYS"].split(","))), load)
        return
    async with fake_stack() as target:
        await measure(target, load)


if __name__ == "__main__":
    asyncio.run(main())
