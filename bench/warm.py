"""What a prefix found in the cache is worth: TTFT of a long prompt that nobody has asked, and of the same one again.

`python -m bench.warm --run-dir DIR`, beside a stack that `headrace up` runs there.
"""

import argparse
import json
import statistics
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from bench.overhead import over_http

PROMPT_TOKENS = 1500
LIMIT = 0.15  # of the cold time


def prompt(number: int) -> list[int]:
    """No two begin alike."""
    return [1000 + (number * 7919 + n * 31) % 20_000 for n in range(PROMPT_TOKENS)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--run-dir", type=Path, required=True)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    state = json.loads((given.run_dir / "state.json").read_text())
    client = HTTPConnection(urlsplit(state["base_url"]).netloc, timeout=120)
    cold_ms, warm_ms = [], []
    for number in range(-1, given.rounds):
        ids = prompt(number)
        pair = over_http(client, state["model"], ids).ttft_ms, over_http(client, state["model"], ids).ttft_ms
        if number >= 0:  # the first pair warms the stack up
            cold_ms.append(pair[0])
            warm_ms.append(pair[1])
    cold, warm = statistics.median(cold_ms), statistics.median(warm_ms)
    print(
        f"{PROMPT_TOKENS:,} tokens: TTFT {cold:.1f} ms cold, {warm:.1f} ms warm, {warm / cold:.3f} of it, limit {LIMIT}"
    )


if __name__ == "__main__":
    main()
