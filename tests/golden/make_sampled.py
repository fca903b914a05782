"""Write sampled_float32.json with the oracle: seeded requests whose every draw stands clear of rounding.

A draw is kept only if it comes out the same for logits changed by random amounts up to 1e-3, so that another order of
sums cannot change it. Run by `make golden` in the project's own environment:
`python -m tests.golden.make_sampled MODEL_DIR`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from libs.contracts.messages import SamplingParams
from tests.fakes.oracle import Cache, Oracle, draw
from tests.golden import FOLDER, golden_prompts

TOKENS = 32
MARGIN = 1e-3
TRIALS = 4
SETTINGS = (
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 0.8, "top_k": 40},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.2, "min_p": 0.05},
    {"temperature": 0.9, "top_k": 20, "top_p": 0.95},
)
PROMPTS = ("text-mill", "chat-capital", "text-one-word", "chat-wheel", "text-log-5", "text-months")


def steady_ids(oracle: Oracle, prompt_ids: list[int], params: SamplingParams) -> list[int] | None:
    """The drawn ids, or None when one of them hangs on the last digits."""
    noise = np.random.default_rng(params.seed)
    cache, ids = Cache(), list[int]()
    logits = oracle.logits(prompt_ids, cache)
    while len(ids) < TOKENS:
        changed = [
            logits + torch.from_numpy(noise.uniform(-MARGIN, MARGIN, len(logits)).astype(np.float32))
            for _ in range(TRIALS)
        ]
        drawn = {draw(each, params, len(ids), choice=0) for each in [logits, *changed]}
        if len(drawn) > 1:
            return None
        ids.append(drawn.pop())
        logits = oracle.logits(ids[-1:], cache)
    return ids


def main(model_dir: Path) -> None:
    oracle = Oracle(model_dir)
    prompts = {prompt.name: prompt.prompt_ids for prompt in golden_prompts()}
    requests = []
    for name, settings in zip(PROMPTS, SETTINGS, strict=True):
        for seed in range(2**63, 2**63 + 100):  # seeds that need all 64 bits
            params = SamplingParams(seed=seed, max_tokens=TOKENS, ignore_eos=True, **settings)  # type: ignore[arg-type]
            if ids := steady_ids(oracle, prompts[name], params):
                body = {"prompt": prompts[name], "seed": seed, "max_tokens": TOKENS, "ignore_eos": True, **settings}
                requests.append({"body": {**body, "return_token_ids": True}, "output_ids": ids})
                break
    content = {"margin": MARGIN, "requests": requests}
    (FOLDER / "sampled_float32.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
