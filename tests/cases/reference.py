"""What a model says by a plain computation that shares no code with the engine: greedy ids, and a prompt's odds.

The model is that of tests/fakes/oracle.py; penalties are those of the transformers library's processors, and OpenAI's.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from tests.fakes.oracle import Cache, Oracle

MINIMUM_GAP = 1e-3  # between the two best logits: below it another order of summation may choose the other one


@cache
def _oracle(model_dir: Path) -> Oracle:
    return Oracle(model_dir)


def greedy_ids(
    model_dir: Path,
    prompt_ids: Sequence[int],
    tokens: int,
    *,
    repetition: float = 1.0,
    frequency: float = 0.0,
    presence: float = 0.0,
    allowed: Sequence[int] = (),
) -> list[int]:
    """So many ids, past any end, or those before a near tie; of `allowed` alone where any are given."""
    oracle, kv, ids = _oracle(model_dir), Cache(), list[int]()
    fresh = list(prompt_ids)
    while len(ids) < tokens:
        logits_V = oracle.logits(fresh, kv).clone()
        for seen in {*prompt_ids, *ids}:
            logits_V[seen] = logits_V[seen] / repetition if logits_V[seen] > 0 else logits_V[seen] * repetition
        for generated, count in Counter(ids).items():
            logits_V[generated] -= frequency * count + presence
        if allowed:
            banned_V = torch.ones(len(logits_V), dtype=torch.bool)
            banned_V[list(allowed)] = False
            logits_V[banned_V] = -torch.inf
        best = torch.topk(logits_V, 2)
        if best.values[0] - best.values[1] < MINIMUM_GAP:
            break
        fresh = [int(best.indices[0])]
        ids += fresh
    return ids


def prompt_logprobs(model_dir: Path, ids: Sequence[int]) -> list[float]:
    """Of each id but the first, given those before it."""
    oracle = Oracle(model_dir)
    odds = (torch.log_softmax(oracle.logits(ids[:at], Cache()).double(), 0)[ids[at]] for at in range(1, len(ids)))
    return [float(one) for one in odds]
