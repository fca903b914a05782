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


def overtaking(model_dir: Path, prompt_ids: Sequence[int], token_id: int, *, repetition: float) -> int:
    """An id that is not in the prompt, less likely than this one that is, and likelier once that is penalised."""
    logits_V = _oracle(model_dir).logits(prompt_ids, Cache())
    plain = float(logits_V[token_id])
    penalised = plain / repetition if plain > 0 else plain * repetition
    distance_V = (logits_V - (plain + penalised) / 2).abs()
    distance_V[list(prompt_ids)] = torch.inf
    rival = int(distance_V.argmin())
    assert penalised + MINIMUM_GAP < logits_V[rival] < plain - MINIMUM_GAP
    return rival


def prompt_logprobs(model_dir: Path, ids: Sequence[int]) -> list[float]:
    """Of each id but the first, given those before it."""
    oracle = Oracle(model_dir)
    odds = (torch.log_softmax(oracle.logits(ids[:at], Cache()).double(), 0)[ids[at]] for at in range(1, len(ids)))
    return [float(one) for one in odds]
