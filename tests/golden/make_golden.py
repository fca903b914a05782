"""Writes the golden files with the `transformers` library, an implementation that shares no code with this one.

Run by `make golden` in an environment of its own (requirements.txt beside this file):

    python tests/golden/make_golden.py MODEL_DIR

MODEL_DIR is the converted default model. Its bf16 weights are widened to float32 and everything is computed in
float32, greedily, past any end-of-sequence token. A candidate is kept when the two best logits stay apart at every
step, so that a correct implementation with another order of summation must produce the same ids.
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from candidates import CONVERSATIONS, Candidate, candidates
from safetensors.torch import save_file
from transformers import AutoTokenizer, LlamaForCausalLM

GOLDEN_DIR = Path(__file__).parent
NEW_TOKENS = 64
MINIMUM_GAP = 1e-2
LOGIT_STEPS = (0, 32)
LOGIT_STRIDE = 48
LOGIT_TOP = 16
LOGIT_PROMPTS = 4
LONG_PROMPT_TOKENS = 1500


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model_dir", type=Path)
    model_dir = parser.parse_args().model_dir
    torch.set_num_threads(2)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()

    write_template_golden(tokenizer)
    kept, logits = choose(model, tokenizer)
    header = {
        "model": model_dir.name,
        "weights_sha256": hashlib.sha256((model_dir / "model.safetensors").read_bytes()).hexdigest(),
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "ignore_eos": True,
        "minimum_gap": MINIMUM_GAP,
    }
    write_lines(GOLDEN_DIR / "greedy_float32.json", header, "prompts", kept)
    save_file(logits, GOLDEN_DIR / "logits_float32.safetensors")


def write_template_golden(tokenizer: Any) -> None:
    """Rendered text and ids of each conversation, as the library's own chat template code gives them."""
    rows = []
    for name, messages in CONVERSATIONS.items():
        for prompt in (True, False):
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=True)["input_ids"]
            rows.append(
                {"name": name, "messages": messages, "add_generation_prompt": prompt, "text": text, "ids": list(ids)}
            )
    write_lines(GOLDEN_DIR / "chat_template.json", {}, "conversations", rows)


def choose(model: Any, tokenizer: Any) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Generate from every candidate; keep those whose every gap is wide, one of the long ones, and some logits."""
    kept: list[dict[str, Any]] = []
    logits: dict[str, torch.Tensor] = {}
    has_long = False
    for candidate in candidates():
        ids = prompt_ids(tokenizer, candidate)
        is_long = len(ids) > LONG_PROMPT_TOKENS
        if is_long and has_long:
            continue
        output_ids, gaps, step_logits = generate(model, ids)
        print(f"{candidate.name}: {len(ids)} prompt tokens, smallest gap {min(gaps):.5f}", flush=True)
        if min(gaps) < MINIMUM_GAP:
            continue
        has_long |= is_long
        if is_long or len(logits) < 4 * LOGIT_PROMPTS:
            logits |= logit_sample(candidate.name, step_logits)
        source = {"messages": candidate.messages} if candidate.messages else {"prompt": candidate.text}
        kind = "chat" if candidate.messages else "text"
        outcome = {"prompt_ids": ids, "output_ids": output_ids, "gaps": [round(gap, 5) for gap in gaps]}
        kept.append({"name": candidate.name, "kind": kind, **source, **outcome})
    assert len(kept) >= 12 and has_long, f"too few candidates passed: {len(kept)}"
    return kept, logits


def prompt_ids(tokenizer: Any, candidate: Candidate) -> list[int]:
    if candidate.messages is None:
        return list(tokenizer(candidate.text, add_special_tokens=False)["input_ids"])
    rendered = tokenizer.apply_chat_template(candidate.messages, add_generation_prompt=True, return_dict=True)
    return list(rendered["input_ids"])


@torch.inference_mode()
def generate(model: Any, ids: list[int]) -> tuple[list[int], list[float], dict[int, torch.Tensor]]:
    """Greedy ids, the gap between the two best logits at each step, and the logits [V] of LOGIT_STEPS."""
    output_ids: list[int] = []
    gaps: list[float] = []
    step_logits: dict[int, torch.Tensor] = {}
    cache, fresh = None, torch.tensor([ids])
    for step in range(NEW_TOKENS):
        out = model(fresh, cache=cache, use_cache=True, logits_to_keep=1)
        cache, logits = out.cache, out.logits[0, -1]
        best = torch.topk(logits, 2)
        output_ids.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        if step in LOGIT_STEPS:
            step_logits[step] = logits.clone()
        fresh = best.indices[:1].view(1, 1)
    return output_ids, gaps, step_logits


def logit_sample(name: str, step_logits: dict[int, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Ids (every LOGIT_STRIDE-th, then the LOGIT_TOP best) and their logits, for each recorded step."""
    sample = {}
    for step, logits in step_logits.items():
        ids = torch.cat([torch.arange(0, logits.numel(), LOGIT_STRIDE), torch.topk(logits, LOGIT_TOP).indices])
        sample[f"{name}.{step}.ids"] = ids.to(torch.int32)
        sample[f"{name}.{step}.logits"] = logits[ids].contiguous()
    return sample


def write_lines(path: Path, header: dict[str, Any], key: str, rows: list[dict[str, Any]]) -> None:
    """JSON with one row a line, so that a change shows as the rows it touches."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in header.items()]
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("\n".join(["{", *lines, f"{json.dumps(key)}: [", body, "]}"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
