"""Two models behind one gateway: each answers as it does alone, which is what another library says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.numpy import save_file

from tests.e2e.conftest import Stack
from tests.golden.family_models import CASES, NEW_TOKENS, PROMPT_TOKENS, prompt, tensors
from tests.kernels.test_families import GOLDEN

pytestmark = [pytest.mark.e2e, pytest.mark.whole]

NAMES = ("llama", "qwen3")


def write_tiny(model_dir: Path, name: str) -> int:
    """A golden model with a tokenizer of one word for each id; its seed."""
    case = next(case for case in CASES if case.name == name)
    golden = next(golden for golden in GOLDEN["cases"] if golden["name"] == name)
    model_dir.mkdir()
    save_file(tensors(case, golden["seed"]), model_dir / "model.safetensors")
    (model_dir / "config.json").write_text(json.dumps(case.full_config))
    vocabulary = {f"[{token_id}]": token_id for token_id in range(case.full_config["vocab_size"])}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (model_dir / "tokenizer.json").write_text(json.dumps(tokenizer))
    return int(golden["seed"])


@pytest.fixture(scope="module")
def seeds() -> dict[str, int]:
    return {}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, seeds: dict[str, int]) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("models")
    seeds |= {name: write_tiny(folder / name, name) for name in NAMES}
    stack = Stack(
        folder / "run",
        model=[str(folder / name) for name in NAMES],
        served_model_name=["llama", "qwen3,other"],
        dtype="float32",
        kv_blocks=64,
    )
    yield stack
    stack.stop()


def complete(stack: Stack, model: str, ids: list[int]) -> dict[str, Any]:
    body = {"model": model, "prompt": ids, "max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
    response = httpx.post(f"{stack.base_url}/completions", json={**body, "return_token_ids": True}, timeout=30)
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


def test_each_model_answers_as_it_does_alone(both: Stack, seeds: dict[str, int]) -> None:
    """In turns, over prompts within a piece of attention and beyond: ids are those of the other library."""
    golden = {case["name"]: case["output_ids"] for case in GOLDEN["cases"]}
    for number, tokens in enumerate(PROMPT_TOKENS):
        for name, asked in (("llama", "llama"), ("qwen3", "other"), ("llama", "llama"), ("qwen3", "qwen3")):
            answer = complete(both, asked, prompt(tokens, seeds[name]))
            assert (answer["model"], answer["choices"][0]["token_ids"]) == (name, golden[name][number])


def test_both_are_listed_and_only_they_are_known(both: Stack) -> None:
    """With an alias; another name is a 404, and each cell has processes of its own."""
    listed = httpx.get(f"{both.base_url}/models").json()["data"]
    unknown = httpx.post(f"{both.base_url}/completions", json={"model": "nobody", "prompt": [1]})

    assert [(model["id"], model["root"]) for model in listed] == [
        ("llama", "llama"),
        ("qwen3", "qwen3"),
        ("other", "qwen3"),
    ]
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    for service in ("scheduler", "tokenizer", "decode_worker"):
        assert len(both.processes(service)) == 2
    assert len(both.processes("gateway")) == 1


def test_a_scheduler_that_starts_again_leaves_the_other_cell_alone(both: Stack, seeds: dict[str, int]) -> None:
    """It asks for the workers of its own cell: the other model's live on, and both answer as before."""
    golden = {case["name"]: case["output_ids"][0] for case in GOLDEN["cases"]}
    workers = {process.pid for process in both.processes("decode_worker")}
    (scheduler,) = both.program("scheduler-1")

    scheduler.kill()
    scheduler.wait(10)

    for name in ("llama", "qwen3"):
        answer = complete(both, name, prompt(PROMPT_TOKENS[0], seeds[name]))
        assert answer["choices"][0]["token_ids"] == golden[name]
    assert {process.pid for process in both.processes("decode_worker")} == workers
