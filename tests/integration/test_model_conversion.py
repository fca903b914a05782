"""GGUF files to model directories: the bundled model against another library's goldens, and files made to do harm."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from libs.engine.gguf_convert import bf16_bits, convert_gguf, ensure_default_model
from libs.engine.gguf_file import GgufError, parse_gguf
from libs.engine.gguf_tensors import half_split_rows
from libs.text.chat import encode_chat
from libs.text.detokenize import Detokenizer
from libs.text.model_files import ModelFiles, read_model_files
from libs.text.template import ChatTemplate
from libs.text.tokenizer import Tokenizer
from tests.integration.tiny_gguf import HIDDEN, WORDS, Change, tiny_gguf

GOLDEN_DIR: Final = Path(__file__).parents[1] / "golden"
NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
FILES: Final = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)


@pytest.fixture(scope="module")
def model_dir() -> Path:
    """The default model in the user's cache, converted there when it is missing."""
    try:
        return ensure_default_model(Path.home() / ".cache" / "headrace")
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model_files(model_dir: Path) -> ModelFiles:
    return read_model_files(model_dir)


@pytest.fixture(scope="module")
def tokenizer(model_files: ModelFiles) -> Tokenizer:
    return Tokenizer(model_files)


@pytest.fixture(scope="module")
def template(model_files: ModelFiles) -> ChatTemplate:
    template = ChatTemplate.from_files(model_files)
    assert template is not None
    return template


def test_the_bundled_weights_are_those_of_the_goldens(model_dir: Path) -> None:
    """Converting gives the very bytes that the other library generated from."""
    golden = json.loads((GOLDEN_DIR / "greedy_float32.json").read_text(encoding="utf-8"))

    assert sha256((model_dir / "model.safetensors").read_bytes()).hexdigest() == golden["weights_sha256"]


def test_text_is_encoded_as_by_the_models_own_tokenizer(tokenizer: Tokenizer) -> None:
    """Ids equal those of the published tokenizer, and decode to the same text."""
    for line in (GOLDEN_DIR / "tokenizer.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        assert tokenizer.encode(case["text"], add_special_tokens=False) == case["ids"]
        assert tokenizer.decode(case["ids"], skip_special_tokens=False) == case["text"]


def test_chats_are_rendered_as_by_the_other_library(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    """Text and ids equal `apply_chat_template`; control tokens in a message are its letters when a chat is encoded."""
    rows = json.loads((GOLDEN_DIR / "chat_template.json").read_text(encoding="utf-8"))["conversations"]
    for row in rows:
        options = {"now": NOW, "add_generation_prompt": row["add_generation_prompt"]}
        assert template.render(row["messages"], **options) == row["text"]
        assert tokenizer.encode(row["text"], add_special_tokens=False) == row["ids"]
        ids = encode_chat(tokenizer, template, row["messages"], **options)
        spelled = sum("<|im_end|>" in message["content"] for message in row["messages"])
        assert (ids == row["ids"]) == (spelled == 0)
        assert ids.count(2) == row["ids"].count(2) - spelled


def test_golden_prompts_have_the_ids_that_a_request_would_get(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    """A chat or text of the goldens, sent as a request, gives the golden prompt ids."""
    for prompt in json.loads((GOLDEN_DIR / "greedy_float32.json").read_text(encoding="utf-8"))["prompts"]:
        if prompt["kind"] == "chat":
            ids = encode_chat(tokenizer, template, prompt["messages"], now=NOW)
        else:
            ids = tokenizer.encode(prompt["prompt"], add_special_tokens=True)
        assert ids == prompt["prompt_ids"], prompt["name"]


@given(ids=st.lists(st.integers(0, 49151), max_size=30), cut=st.integers(0, 30), skip=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_real_ids_detokenise_alike_in_pieces(tokenizer: Tokenizer, ids: list[int], cut: int, skip: bool) -> None:
    """Any ids of the real vocabulary, cut anywhere, give the text of all at once."""
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)

    text = detokenizer.push(ids[:cut]) + detokenizer.push(ids[cut:]) + detokenizer.finish()

    assert text == tokenizer.decode(ids, skip_special_tokens=skip)


def test_a_converted_directory_has_every_tensor_under_its_name(tmp_path: Path) -> None:
    """Names, bf16 values, the tied head and the rotary order of a small model are as Hugging Face has them."""
    kept: dict[str, np.ndarray] = {}
    path = tiny_gguf(tmp_path / "tiny.gguf", lambda keys, tensors: kept.update(tensors))

    out_dir = convert_gguf(path, tmp_path / "model")

    assert sorted(entry.name for entry in out_dir.iterdir()) == sorted(FILES)
    assert json.loads((out_dir / "config.json").read_text())["tie_word_embeddings"] is True
    with safe_open(out_dir / "model.safetensors", framework="pt") as weights:
        assert len(list(weights.keys())) == len(kept)
        down = weights.get_tensor("model.layers.0.mlp.down_proj.weight")
        key = weights.get_tensor("model.layers.0.self_attn.k_proj.weight")
    assert torch.equal(down, torch.from_numpy(kept["blk.0.ffn_down.weight"]).to(torch.bfloat16))
    interleaved = torch.from_numpy(kept["blk.0.attn_k.weight"]).to(torch.bfloat16)
    assert torch.equal(key, torch.cat([interleaved[0::2], interleaved[1::2]]))


def test_a_head_of_its_own_is_kept(tmp_path: Path) -> None:
    """A file with an output matrix becomes a model whose head is not tied."""

    def untie(keys: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        tensors["output.weight"] = tensors["token_embd.weight"] * 2

    out_dir = convert_gguf(tiny_gguf(tmp_path / "tiny.gguf", untie), tmp_path / "model")

    assert json.loads((out_dir / "config.json").read_text())["tie_word_embeddings"] is False
    with safe_open(out_dir / "model.safetensors", framework="pt") as weights:
        assert weights.get_tensor("lm_head.weight").shape == (len(WORDS), HIDDEN)


def test_rotary_rows_are_put_back_where_the_other_converter_took_them_from() -> None:
    """The permutation of llama.cpp's converter, undone, gives the first order."""
    rows = np.arange(3 * 8 * 5, dtype=np.float32).reshape(24, 5)
    permuted = rows.reshape(3, 2, 4, 5).swapaxes(1, 2).reshape(24, 5)

    assert np.array_equal(half_split_rows(permuted, 8), rows)


def test_rounding_to_bf16_equals_torch() -> None:
    """Nearest, ties to even, on ordinary numbers, exact ties, zeros and denormals."""
    random = np.random.default_rng(1).integers(0, 0x7F00_0000, 4096, dtype=np.uint32)
    ties = (random & np.uint32(0xFFFF_0000)) | np.uint32(0x8000)
    numbers = np.concatenate([random, ties, random | np.uint32(1 << 31), np.arange(70000, dtype=np.uint32)]).view(
        np.float32
    )

    rounded = torch.from_numpy(bf16_bits(numbers).view(np.int16)).view(torch.bfloat16)

    assert torch.equal(rounded, torch.from_numpy(numbers.copy()).to(torch.bfloat16))


def test_two_processes_may_convert_at_once(tmp_path: Path) -> None:
    """Both return, one complete directory is left, and nothing beside it."""
    path = tiny_gguf(tmp_path / "tiny.gguf")
    out_dir = tmp_path / "cache" / "model"

    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = [pool.submit(convert_or_find, path, out_dir) for _ in range(2)]
        assert [result.result() for result in results] == [out_dir, out_dir]

    assert [entry.name for entry in out_dir.parent.iterdir()] == ["model"]
    assert sorted(entry.name for entry in out_dir.iterdir()) == sorted(FILES)


def convert_or_find(path: Path, out_dir: Path) -> Path:
    return out_dir if out_dir.is_dir() else convert_gguf(path, out_dir)


def test_the_slower_of_two_conversions_keeps_the_first_ones_directory(tmp_path: Path) -> None:
    """When the directory appears while converting, it stays as it is and is returned."""
    path = tiny_gguf(tmp_path / "tiny.gguf")
    out_dir = tmp_path / "model"

    def first_finishes(done: int, total: int) -> None:
        out_dir.mkdir(exist_ok=True)
        (out_dir / "config.json").write_text("first")

    assert convert_gguf(path, out_dir, progress=first_finishes) == out_dir
    assert (out_dir / "config.json").read_text() == "first"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model", "tiny.gguf"]


def drop(name: str) -> Change:
    def change(keys: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        keys.pop(name, None)
        tensors.pop(name, None)

    return change


def put(name: str, value: Any) -> Change:
    return lambda keys, tensors: keys.update({name: value})


def put_tensor(name: str, *shape: int, fill: float = 0.0) -> Change:
    return lambda keys, tensors: tensors.update({name: np.full(shape, fill, dtype=np.float32)})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (put_tensor("token_embd.weight", 7, HIDDEN), "token_embd.weight"),
        (drop("blk.0.ffn_up.weight"), "blk.0.ffn_up.weight"),
        (put_tensor("blk.0.attn_q.bias", HIDDEN), "blk.0.attn_q.bias"),
        (put_tensor("blk.0.attn_norm.weight", HIDDEN, fill=float("nan")), "blk.0.attn_norm.weight"),
        (put_tensor("blk.0.attn_norm.weight", HIDDEN, fill=3.4e38), "bfloat16"),
        (put_tensor("rope_freqs.weight", 8), "RoPE"),
        (drop("tokenizer.ggml.merges"), "tokenizer.ggml.merges"),
        (put("tokenizer.ggml.merges", ["a bb"]), "merge 'a bb'"),
        (put("tokenizer.ggml.tokens", ["<s>", "<s>"]), "twice"),
        (put("llama.vocab_size", 9), "vocabulary"),
        (put("tokenizer.ggml.token_type", [1]), "token types"),
        (put("tokenizer.ggml.eos_token_id", 10**6), "tokenizer.ggml.eos_token_id"),
        (put("tokenizer.ggml.pre", "other"), "pre-tokenizer other"),
        (put("tokenizer.ggml.model", "llama"), "tokenizer model llama"),
        (put("llama.attention.head_count", 5), "heads"),
        (put("llama.attention.head_count_kv", 0), "heads"),
        (put("llama.block_count", "x"), "llama.block_count"),
        (put("llama.rope.dimension_count", 8), "RoPE"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, change: Change, named: str) -> None:
    """The error names the key or tensor, and no directory is left behind."""
    path = tiny_gguf(tmp_path / "tiny.gguf", change)

    with pytest.raises(GgufError, match=named):
        convert_gguf(path, tmp_path / "model")

    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.gguf"]


@pytest.fixture(scope="module")
def tiny_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf").read_bytes()


def parse(raw: bytes) -> None:
    parse_gguf(np.frombuffer(raw, dtype=np.uint8))


def test_a_file_cut_anywhere_is_refused(tiny_bytes: bytes) -> None:
    """No length makes the reader go past the end."""
    for size_bytes in [*range(0, 600), *range(600, len(tiny_bytes), 977)]:
        with pytest.raises(GgufError):
            parse(tiny_bytes[:size_bytes])


@given(offset_bytes=st.integers(0, 12_000), patch=st.binary(min_size=1, max_size=9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_damaged_header_is_refused_or_read(tiny_bytes: bytes, offset_bytes: int, patch: bytes) -> None:
    """Whatever is written over the header, the reader answers by type and stays within the file."""
    raw = tiny_bytes[:offset_bytes] + patch + tiny_bytes[offset_bytes + len(patch) :]

    try:
        parse(raw)
    except GgufError as error:
        assert str(error)
