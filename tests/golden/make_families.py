"""Writes families_float32.json with the `transformers` library: greedy ids of the tiny models of family_models.py.

Run by `make golden` in an environment of its own (requirements.txt beside this file). Everything is float32. Of each
model the first seed is taken whose two best logits stay apart at every step of every prompt, and whose ids change when
its feature is left out.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from family_models import CASES, NEW_TOKENS, PROMPT_TOKENS, Case, prompt, tensors
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

GOLDEN = Path(__file__).parent / "families_float32.json"
MINIMUM_GAP = 2e-2
MAX_SEED = 400


def main() -> None:
    torch.set_num_threads(1)
    rows = [choose(case) for case in CASES]
    versions = json.dumps({"torch": torch.__version__, "transformers": transformers.__version__})
    body = ",\n".join(map(json.dumps, rows))
    GOLDEN.write_text(f'{{\n"made_with": {versions},\n"minimum_gap": {MINIMUM_GAP},\n"cases": [\n{body}\n]}}\n')


def choose(case: Case) -> dict[str, Any]:
    for seed in range(MAX_SEED):
        outcomes = [greedy(case, seed, tokens) for tokens in PROMPT_TOKENS]
        gap = min(gap for _, gap in outcomes)
        if gap < MINIMUM_GAP or not changes(case, seed, [ids for ids, _ in outcomes]):
            continue
        print(f"{case.name}: seed {seed}, smallest gap {gap:.4f}", flush=True)
        return {"name": case.name, "seed": seed, "output_ids": [ids for ids, _ in outcomes]}
    raise AssertionError(f"no seed suits {case.name}")


def changes(case: Case, seed: int, ids: list[list[int]]) -> bool:
    """Whether the model without its feature says something else."""
    if not case.plain:
        return True
    if case.name == "llama-dynamic":  # below its declared length it is the plain model, and above another one
        stretched = replace(case, wanted_tokens=2048)
        return any(greedy(stretched, seed, tokens)[0] != mine for tokens, mine in zip(PROMPT_TOKENS, ids, strict=True))
    plain = replace(case, config={**case.config, **case.plain}, wanted_tokens=0)
    return any(greedy(plain, seed, tokens)[0] != mine for tokens, mine in zip(PROMPT_TOKENS, ids, strict=True))


@torch.inference_mode()
def greedy(case: Case, seed: int, prompt_tokens: int) -> tuple[list[int], float]:
    """Ids past any end of sequence, and the smallest gap between the two best logits."""
    model = load(case, seed)
    output_ids: list[int] = []
    smallest = float("inf")
    cache, fresh = None, torch.tensor([prompt(prompt_tokens, seed)])
    for _ in range(NEW_TOKENS):
        out = model(fresh, cache=cache, use_cache=True)
        cache = out.cache
        best = torch.topk(out.logits[0, -1], 2)
        output_ids.append(int(best.indices[0]))
        smallest = min(smallest, float(best.values[0] - best.values[1]))
        fresh = best.indices[:1].view(1, 1)
    return output_ids, smallest


def load(case: Case, seed: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        save_file(tensors(case, seed), Path(folder) / "model.safetensors", metadata={"format": "pt"})
        (Path(folder) / "config.json").write_text(json.dumps(case.full_config))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if case.wanted_tokens:
        stretch(model, case.wanted_tokens)
    return model


def stretch(model: Any, tokens: int) -> None:
    """Hold dynamic RoPE at the frequencies that the library has for a sequence of so many tokens."""
    rotary = model.model.rotary_emb
    rotary.inv_freq, _ = ROPE_INIT_FUNCTIONS["dynamic"](model.config, torch.device("cpu"), seq_len=tokens)
    rotary.rope_type = "default"


if __name__ == "__main__":
    main()
