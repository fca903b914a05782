"""Cases of what a model's directory holds; those of weights alone are played on the engine's own loader."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import save_file as save_numpy_file
from safetensors.torch import save_file

from kernels.native.levels import supported_levels
from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import blocks_for
from libs.engine.gguf_convert import convert_gguf
from libs.engine.gguf_file import GgufError
from libs.engine.model_config import load_model_config
from libs.engine.rows import StepRow
from libs.engine.weights import ModelWeights, load_weights
from tests.cases.play import Play
from tests.cases.reference import prompt_logprobs
from tests.engines import opened
from tests.golden.family_models import CASES, PROMPT_TOKENS, Case, prompt, tensors
from tests.integration.tiny_gguf import Change, tiny_gguf
from tests.kernels.test_families import GOLDEN, LONGEST, generate
from tests.unit.engine.tiny_model import CONFIG, tiny_tensors, write_model

HEAD = "lm_head.weight"
PROMPT = [5, 9, 2, 77, 31, 64, 9, 120]
LONGEST_BLOCKS = blocks_for(LONGEST, 16)


def _load(model_dir: Path) -> ModelWeights:
    return load_weights(model_dir, load_model_config(model_dir), torch.float32)


def _is_same(one: ModelWeights, other: ModelWeights) -> bool:
    pairs = [(one.embedding_VK, other.embedding_VK), (one.head.parts_SNE[0], other.head.parts_SNE[0])]
    pairs += [(a.down.parts_SNE[0], b.down.parts_SNE[0]) for a, b in zip(one.layers, other.layers, strict=True)]
    return all(torch.equal(a, b) for a, b in pairs)


def _check_odds(model_dir: Path, expected: list[float]) -> None:
    """The engine's odds of the prompt, by every kind of kernel that this machine has."""
    for kernels in ("torch", *supported_levels()):
        engine = opened(kernels, model_dir, blocks=1).engine
        (sampled,) = engine.step([StepRow(PROMPT, 0, [0], None, (), PROMPT[1:], 0)])
        assert sampled is not None and sampled.scores is not None
        assert list(sampled.scores.logprobs) == pytest.approx(expected, abs=1e-4)


def _scaling(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The kind of a config's rotation, and its other keys; None for the plain one, and where it is told elsewhere."""
    others = dict(config.get("rope_scaling") or {})
    kinds = [others.pop(key) for key in ("type", "rope_type") if key in others]
    return (kinds[0], others) if kinds else None


def _golden_model(model_dir: Path, case: Case, seed: int, scaling: dict[str, Any]) -> Path:
    """The model that the other library computed, with its rotation told as `scaling`."""
    model_dir.mkdir()
    save_numpy_file(tensors(case, seed), model_dir / "model.safetensors")
    (model_dir / "config.json").write_text(json.dumps({**case.full_config, "rope_scaling": scaling}))
    return model_dir


async def b140(play: Play) -> None:
    """A head beside a tied table is not read."""
    tensors = tiny_tensors(CONFIG)
    twice = {**tensors, HEAD: tensors["model.embed_tokens.weight"].clone()}
    one, two = write_model(play.scratch / "one"), write_model(play.scratch / "two", twice)
    assert _is_same(_load(one), _load(two))
    other = {**tensors, HEAD: 2 * tensors["model.embed_tokens.weight"]}
    assert _is_same(_load(one), _load(write_model(play.scratch / "three", other)))
    _check_odds(two, prompt_logprobs(one, PROMPT))


async def b141(play: Play) -> None:
    """A head that is missing is named."""
    with pytest.raises(ConfigError, match=HEAD):
        _load(write_model(play.scratch / "one", tiny_tensors(CONFIG), tie_word_embeddings=False))


async def b142(play: Play) -> None:
    """Where nothing is said the architecture decides: those that are served have a head, so a missing one is named."""
    model_dir = write_model(play.scratch / "one", tiny_tensors(CONFIG))
    config = json.loads((model_dir / "config.json").read_text())
    del config["tie_word_embeddings"]
    (model_dir / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=HEAD):
        _load(model_dir)


async def b143(play: Play) -> None:
    """Of many files those are read that the index lists; one that is missing is named."""
    whole, tensors = _load(write_model(play.scratch / "one")), tiny_tensors(CONFIG)
    model_dir = write_model(play.scratch / "two")
    (model_dir / "model.safetensors").unlink()
    shards = [f"model-0000{index}-of-00002.safetensors" for index in (1, 2)]
    owner = {name: shards[index % 2] for index, name in enumerate(tensors)}
    for shard in shards:
        save_file({name: tensor for name, tensor in tensors.items() if owner[name] == shard}, model_dir / shard)
    save_file({"tok_embeddings.weight": torch.zeros(3)}, model_dir / "consolidated.safetensors")
    (model_dir / "model.safetensors.index.json").write_text(json.dumps({"weight_map": owner}))
    assert _is_same(whole, _load(model_dir))
    _check_odds(model_dir, prompt_logprobs(play.scratch / "one", PROMPT))
    (model_dir / shards[1]).unlink()
    with pytest.raises(ConfigError, match=shards[1]):
        _load(model_dir)


async def b145(play: Play) -> None:
    """Both spellings of a kind of rotation are one; a kind that nobody knows is refused by the key."""
    yarn = {"factor": 4.0, "original_max_position_embeddings": 64}
    configs = [
        load_model_config(
            write_model(play.scratch / key, max_position_embeddings=256, rope_scaling={**yarn, key: "yarn"})
        )
        for key in ("type", "rope_type")
    ]
    assert configs[0] == configs[1]
    kinds = set()
    for case, golden in zip(CASES, GOLDEN["cases"], strict=True):
        if (scaling := _scaling(case.config)) is None:
            continue
        kind, others = scaling
        kinds.add(kind)
        dirs = [
            _golden_model(play.scratch / f"{case.name}-{key}", case, golden["seed"], {**others, key: kind})
            for key in ("type", "rope_type")
        ]
        assert load_model_config(dirs[0]) == load_model_config(dirs[1])
        engine = opened("torch", dirs[1], blocks=LONGEST_BLOCKS, wanted_tokens=case.wanted_tokens).engine
        assert [generate(engine, prompt(n, golden["seed"])) for n in PROMPT_TOKENS] == golden["output_ids"], case.name
    assert kinds == {"linear", "dynamic", "llama3", "yarn"}
    with pytest.raises(ConfigError, match=r"rope"):
        load_model_config(write_model(play.scratch / "other", rope_scaling={"type": "banana", "factor": 2.0}))


async def b147(play: Play) -> None:
    """Every id of a list of ends ends an answer, and is not shown."""
    for reply in await play.play():
        assert (reply.reason, reply.text) == ("stop", "") and reply.tokens <= 1


async def b148(play: Play) -> None:
    """Who ignores ends ignores all that the model declares, and none of its own."""
    ignored, own = await play.play()
    assert (ignored.tokens, ignored.reason) == (20, "length")
    assert (own.tokens, own.reason) == (1, "stop")


async def b150(play: Play) -> None:
    """Rows of the head without a token are nobody's answer, however high they are."""
    answered, biased = await play.play()
    again = await play.send(0, return_token_ids=True)
    ids = again.choices()[0]["token_ids"]
    assert answered.text and len(ids) == 32 and max(ids) < play.stage.names["VOCAB"]
    known = set(play.stage.tokenizer.get_vocab())
    assert all(len(top) == 5 for top in answered.lists["top_logprobs"]) and known
    assert biased.status == 400


async def b152(play: Play) -> None:
    """A file that contradicts itself is refused, with the name of what is wrong."""

    def without_merges(keys: dict, tensors: dict) -> None:  # type: ignore[type-arg]
        del keys["tokenizer.ggml.merges"]

    def short_table(keys: dict, tensors: dict) -> None:  # type: ignore[type-arg]
        tensors["token_embd.weight"] = tensors["token_embd.weight"][:-2]

    damages: dict[str, Callable[[bytes], bytes]] = {
        "truncated": lambda data: data[: len(data) // 2],
        "magic": lambda data: b"GGUX" + data[4:],
        "offset": lambda data: data[:-4096],
    }
    changes: dict[str, tuple[Change, str]] = {
        "merges": (without_merges, "merges"),
        "table": (short_table, "token_embd|embed_tokens|vocab"),
    }
    for name, damage in damages.items():
        path = tiny_gguf(play.scratch / f"{name}.gguf")
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises((ConfigError, GgufError)):
            convert_gguf(path, play.scratch / name)
    for name, (change, named) in changes.items():
        path = tiny_gguf(play.scratch / f"{name}.gguf", change)
        with pytest.raises((ConfigError, GgufError), match=named):
            convert_gguf(path, play.scratch / name)


async def b154(play: Play) -> None:
    """Added tokens stand in the text as they are, and go in as one id each."""
    plain, spelled, echoed = await play.play()
    assert plain.text == spelled.text == "<think>ok</think>1"
    assert echoed.text.startswith("<think>a</think>b")
    assert echoed.prompt_tokens == len(play.stage.ids("<think>a</think>b")) == 4
