"""What the services cost on top of the engine: ITL and TTFT over HTTP minus those of a loop in this process.

Run it beside a stack that is up: `python -m bench.overhead --run-dir DIR --model-dir DIR`. Rounds alternate, so drift
of the machine hits both. The limit is the in-process loop itself: the same engine, weights and threads, no wire.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from bench.local_engine import LocalEngine
from deploy.local.environment import SPIN_COUNT
from libs.engine.kernel_choice import TORCH

PROMPT_TOKENS = 128
NEW_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Round:
    ttft_ms: float
    itl_ms: float  # median gap between two tokens
    tpot_ms: float  # mean gap, stalls of the machine included

    @classmethod
    def of(cls, started_s: float, arrivals_s: list[float]) -> "Round":
        gaps_ms = [(after - before) * 1e3 for before, after in pairwise(arrivals_s)]
        return cls((arrivals_s[0] - started_s) * 1e3, statistics.median(gaps_ms), statistics.mean(gaps_ms))


def prompt(number: int) -> list[int]:
    """Another prompt each round, so that no prefix is found again."""
    return [1000 + (number * 7919 + n * 31) % 20_000 for n in range(PROMPT_TOKENS)]


def over_http(client: HTTPConnection, model: str, ids: list[int]) -> Round:
    """The barest client there is: its own time on these cores would count as the services'."""
    body = {
        "model": model,
        "prompt": ids,
        "max_tokens": NEW_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    started_s = time.perf_counter()
    client.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    with client.getresponse() as answer:
        assert answer.status == 200, answer.read()
        arrivals_s = list(_arrivals(answer))
    return Round.of(started_s, arrivals_s)


def _arrivals(answer: HTTPResponse) -> Iterator[float]:
    """One time per event that carries a choice; the engine gives one token a step."""
    while line := answer.readline():
        if b'"text":' in line:
            yield time.perf_counter()


def in_process(engine: LocalEngine, ids: list[int]) -> Round:
    started_s = time.perf_counter()
    return Round.of(started_s, [time.perf_counter() for _ in engine.generate(ids, NEW_TOKENS)])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--run-dir", type=Path, required=True)
    arguments.add_argument("--model-dir", type=Path, required=True)
    arguments.add_argument("--dtype", default="bfloat16")
    arguments.add_argument("--kernels", default="auto")
    arguments.add_argument("--rounds", type=int, default=10)
    given = arguments.parse_args()
    state = json.loads((given.run_dir / "state.json").read_text())
    engine = LocalEngine(given.model_dir, given.dtype, kernels=given.kernels)
    spins = os.environ.get("GOMP_SPINCOUNT") == str(SPIN_COUNT)
    assert spins or engine.kernels != TORCH, f"run with GOMP_SPINCOUNT={SPIN_COUNT}, as workers do"
    pairs = []
    client = HTTPConnection(urlsplit(state["base_url"]).netloc, timeout=120)
    for number in range(-1, given.rounds):
        pair = over_http(client, state["model"], prompt(number)), in_process(engine, prompt(number))
        if number >= 0:  # the first pair warms both up
            pairs.append(pair)
            print(f"round {number}: http {pair[0]} in process {pair[1]}")
    for name in ("ttft_ms", "itl_ms", "tpot_ms"):
        http, local = ([getattr(pair[side], name) for pair in pairs] for side in (0, 1))
        extra = statistics.median(a - b for a, b in zip(http, local, strict=True))
        http_ms, local_ms = statistics.median(http), statistics.median(local)
        print(
            f"{name}: http {http_ms:.2f}, in process {local_ms:.2f}, ratio {http_ms / local_ms:.3f}, "
            f"median of paired differences {extra:+.2f} ms"
        )


if __name__ == "__main__":
    main()
