"""Other people's clients against a running stack, unmodified; `make clients` installs them.

A tiny random model serves: what they ask for and how they read the answers is looked at, not what the answers say.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from tests.cases.models import byte_level_model
from tests.e2e.conftest import Stack
from tests.fakes.oracle import Cache, Oracle

HERE = Path(__file__).parent
PROGRAMS = HERE.parents[1] / ".venv-clients" / "bin"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.whole,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAMS.is_dir(), reason="`make clients` installs them"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Path]]:
    """A stack, and the directory of its model."""
    folder = tmp_path_factory.mktemp("clients")
    model_dir = byte_level_model(folder / "tiny")
    stack = Stack(folder / "run", model=model_dir, dtype="float32", role="hybrid", prefill=0, kv_blocks=4096)
    yield stack, model_dir
    stack.stop()


def _run(*command: object, cwd: Path, **environ: str) -> str:
    """What the program says; it must end well."""
    done = subprocess.run(
        [str(PROGRAMS / str(command[0])), *map(str, command[1:])],
        cwd=cwd,
        env={
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "HOME": str(cwd),
            "OPENAI_API_KEY": "none",
            "COLUMNS": "200",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


def test_schemathesis_finds_no_fault(served: tuple[Stack, Path], tmp_path: Path) -> None:
    """Requests made of /openapi.json, right and wrong ones: no 5xx, nothing that the document does not say, no hang."""
    stack, _ = served
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    limits = ("--max-examples", 60, "--request-timeout", 60, "--max-response-time", 30, "--seed", 1, "--workers", 2)
    url = f"{stack.base_url.removesuffix('/v1')}/openapi.json"
    phases = ("--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all")
    said = _run("schemathesis", "run", url, "--checks", checks, *limits, *phases, cwd=tmp_path)
    print(said[-3000:])
    assert stack.status()["running"] == 0 or stack.status()["waiting"] == 0


def test_llm_prompts_and_streams(served: tuple[Stack, Path], tmp_path: Path) -> None:
    """A model of a file of its own; streamed by default, whole when told so: the same text."""
    stack, _ = served
    entry = {"model_id": "ours", "model_name": stack.model, "api_base": stack.base_url, "api_key_name": "ours"}
    (tmp_path / "extra-openai-models.yaml").write_text(f"- {json.dumps(entry)}\n")
    asked = ("llm", "-m", "ours", "--key", "none", "-o", "temperature", 0, "-o", "max_tokens", 16, "Say something.")
    streamed = _run(*asked, cwd=tmp_path, LLM_USER_PATH=str(tmp_path))
    whole = _run(*asked, "--no-stream", cwd=tmp_path, LLM_USER_PATH=str(tmp_path))
    assert streamed.strip() and streamed == whole


def test_langchain_chats_streams_and_binds(served: tuple[Stack, Path], tmp_path: Path) -> None:
    """Its own structured output among it."""
    stack, _ = served
    told = json.loads(_run("python", HERE / "langchain_chat.py", stack.base_url, stack.model, cwd=tmp_path))
    assert told["whole"] == told["streamed"] and told["usage"]["output_tokens"] == 24
    assert told["yes"] in (True, False)


def test_lm_eval_scores_as_a_model_in_memory(served: tuple[Stack, Path], tmp_path: Path) -> None:
    """Each log-likelihood of a small task, by prompts of ids with echo, equals the oracle's, and so does the score."""
    stack, model_dir = served
    for name in ("colours.yaml", "colours.jsonl"):
        shutil.copy(HERE / name, tmp_path / name)
    arguments = (
        f"base_url={stack.base_url}/completions,model={stack.model},tokenizer={model_dir},tokenizer_backend=huggingface"
    )
    arguments += ",num_concurrent=2,max_retries=1,tokenized_requests=True,max_length=2048"
    run = ("lm_eval", "run", "--model", "local-completions", "--model_args", arguments, "--tasks", "colours")
    _run(
        *run,
        "--include_path",
        tmp_path,
        "--output_path",
        tmp_path / "out",
        "--log_samples",
        cwd=tmp_path,
        HF_HUB_OFFLINE="1",
    )
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]

    oracle, tokenizer = Oracle(model_dir), Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    right = 0
    for row in rows:
        wanted = [_log_likelihood(oracle, tokenizer, *arguments) for arguments in _asked(row)]
        told = [float(answers[0][0]) for answers in row["resps"]]
        assert told == pytest.approx(wanted, abs=2e-3)
        right += wanted.index(max(wanted)) == row["doc"]["answer"]
    (results,) = (tmp_path / "out").rglob("results_*.json")
    score = json.loads(results.read_text())["results"]["colours"]["acc,none"]
    print(f"{len(rows)} questions, score {score:.4f}, the oracle's {right / len(rows):.4f}")
    assert score == pytest.approx(right / len(rows))


def _asked(row: dict[str, Any]) -> list[tuple[str, str]]:
    """(context, continuation) of each choice."""
    arguments = row["arguments"]
    named = [arguments[key] for key in sorted(arguments, key=lambda key: int(re.sub(r"\D", "", key)))]
    return [(one["arg_0"], one["arg_1"]) for one in named]


def _log_likelihood(oracle: Oracle, tokenizer: Tokenizer, context: str, continuation: str) -> float:
    """As lm-eval cuts it: what the two together have beyond the context."""
    whole, before = (tokenizer.encode(text, add_special_tokens=False).ids for text in (context + continuation, context))
    cache, total = Cache(), 0.0
    logits = oracle.logits(before, cache)
    for token_id in whole[len(before) :]:
        total += float(torch.log_softmax(logits.double(), 0)[token_id])
        logits = oracle.logits([token_id], cache)
    return total


def test_guidellm_completes(served: tuple[Stack, Path], tmp_path: Path) -> None:
    """A short benchmark at one rate: every request is answered."""
    stack, model_dir = served
    backend = f"kind=openai_http,target={stack.base_url.removesuffix('/v1')},model={stack.model}"
    data = "kind=synthetic_text,prompt_tokens=64,output_tokens=16"
    load = ("--profile", "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=24", "--data", data)
    read = (
        "--tokenizer",
        f"kind=huggingface_auto,model={model_dir}",
        "--output",
        f"kind=json,path={tmp_path / 'report.json'}",
    )
    _run("guidellm", "run", "--backend", backend, *load, *read, "--disable-progress", cwd=tmp_path, HF_HUB_OFFLINE="1")
    (benchmark,) = json.loads((tmp_path / "report.json").read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    print(totals)
    assert totals["successful"] >= 24 and not totals["errored"]
