"""The golden files as values."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class GoldenPrompt:
    """A prompt and its 64 greedy ids, the two best logits at least 1e-2 apart at each step."""

    name: str
    prompt_ids: list[int]
    output_ids: list[int]


@dataclass(frozen=True, slots=True)
class SampledRequest:
    """A completions request (less its model) and the ids it draws, stable under changes of 1e-3 in any logit."""

    body: dict[str, Any]
    output_ids: list[int]


def golden_prompts() -> list[GoldenPrompt]:
    rows = json.loads((FOLDER / "greedy_float32.json").read_text())["prompts"]
    return [GoldenPrompt(row["name"], row["prompt_ids"], row["output_ids"]) for row in rows]


def sampled_requests() -> list[SampledRequest]:
    rows = json.loads((FOLDER / "sampled_float32.json").read_text())["requests"]
    return [SampledRequest(row["body"], row["output_ids"]) for row in rows]
