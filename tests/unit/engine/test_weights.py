"""Opening, checking and packing a model's tensors."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from libs.contracts.errors import ConfigError
from libs.engine.checkpoint import model_digest, open_checkpoint
from libs.engine.gguf_convert import convert_gguf
from libs.engine.model_config import load_model_config
from libs.engine.weights import ModelWeights, load_weights
from tests.integration.tiny_gguf import tiny_gguf
from tests.unit.engine.tiny_model import CONFIG, tiny_tensors, write_model


def load(model_dir: Path, dtype: torch.dtype = torch.float32) -> ModelWeights:
    return load_weights(model_dir, load_model_config(model_dir), dtype)


def write_shards(model_dir: Path, names: tuple[str, str] = ("a.safetensors", "b.safetensors")) -> Path:
    """The tiny model in two files behind an index."""
    write_model(model_dir)
    (model_dir / "model.safetensors").unlink()
    tensors = tiny_tensors(CONFIG)
    owner = {name: names[i % 2] for i, name in enumerate(tensors)}
    for shard in names:
        if "/" not in shard:
            save_file({n: t for n, t in tensors.items() if owner[n] == shard}, model_dir / shard)
    (model_dir / "model.safetensors.index.json").write_text(json.dumps({"weight_map": owner}))
    return model_dir


def test_tied_embeddings_share_memory(tmp_path: Path) -> None:
    """The head of a tied model is the table itself."""
    weights = load(write_model(tmp_path))

    assert weights.head.parts_SNE.data_ptr() == weights.embedding_VK.data_ptr()


def test_an_untied_head_is_read(tmp_path: Path) -> None:
    """lm_head.weight becomes the head."""
    model_dir = write_model(tmp_path, tie_word_embeddings=False)

    head = load(model_dir).head.parts_SNE[0]

    assert torch.equal(head, tiny_tensors(CONFIG | {"tie_word_embeddings": False})["lm_head.weight"])


def test_bfloat16_weights_are_rounded_once(tmp_path: Path) -> None:
    """Every packed value of the class is a bfloat16 value."""
    weights = load(write_model(tmp_path), torch.bfloat16)

    for part in (weights.embedding_VK, weights.final_norm_K, weights.layers[1].down.parts_SNE):
        assert torch.equal(part, part.bfloat16().float())
    assert torch.equal(weights.embedding_VK, tiny_tensors(CONFIG)["model.embed_tokens.weight"].bfloat16().float())


def test_row_parallel_layers_are_cut(tmp_path: Path) -> None:
    """o_proj has a segment per KV head, down_proj segments at multiples of 32, the others one."""
    layer = load(write_model(tmp_path)).layers[0]

    assert layer.o.cuts == (0, 32, 64)
    assert layer.down.cuts == (0, 32, 64, 80)
    assert (layer.qkv.cuts, layer.gate_up.cuts) == ((0, 48), (0, 48))


def test_shards_are_one_model(tmp_path: Path) -> None:
    """An index over two files loads like a single file."""
    single, sharded = load(write_model(tmp_path / "one")), load(write_shards(tmp_path / "two"))

    assert torch.equal(single.embedding_VK, sharded.embedding_VK)
    assert torch.equal(single.layers[1].gate_up.parts_SNE, sharded.layers[1].gate_up.parts_SNE)


def test_a_gguf_file_is_the_model_it_converts_to(tmp_path: Path) -> None:
    """Loading the file itself gives the bits of the converted directory."""
    gguf = tiny_gguf(tmp_path / "tiny.gguf")
    directory = convert_gguf(gguf, tmp_path / "converted")

    direct, converted = load(gguf, torch.bfloat16), load(directory, torch.bfloat16)

    assert load_model_config(gguf) == load_model_config(directory)
    assert torch.equal(direct.embedding_VK, converted.embedding_VK)
    assert torch.equal(direct.layers[0].qkv.parts_SNE, converted.layers[0].qkv.parts_SNE)
    assert model_digest(gguf) != model_digest(directory)


def test_a_damaged_gguf_file_is_a_config_error(tmp_path: Path) -> None:
    """For the config and for the weights."""
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF")

    with pytest.raises(ConfigError, match=r"damaged\.gguf"):
        load_model_config(damaged)
    with pytest.raises(ConfigError, match=r"damaged\.gguf"):
        open_checkpoint(damaged)


def test_progress_counts_layers(tmp_path: Path) -> None:
    """The callback hears of each layer and of how many there are."""
    heard: list[tuple[int, int]] = []
    model_dir = write_model(tmp_path)

    load_weights(model_dir, load_model_config(model_dir), torch.float32, lambda *step: heard.append(step))

    assert heard == [(1, 2), (2, 2)]


def test_every_wrong_tensor_is_named(tmp_path: Path) -> None:
    """Missing, unexpected, misshapen and mistyped tensors appear in one message."""
    tensors = tiny_tensors(CONFIG)
    del tensors["model.norm.weight"]
    tensors["model.extra"] = torch.zeros(1)
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.zeros(3, 4)
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(80, 48, dtype=torch.int8)

    with pytest.raises(ConfigError) as raised:
        load(write_model(tmp_path, tensors))

    message = raised.value.message
    assert "model.norm.weight is missing" in message
    assert "model.extra is not part" in message
    assert "layers.0.mlp.up_proj.weight has shape [3, 4], the config needs [80, 48]" in message
    assert "layers.1.mlp.up_proj.weight has dtype I8" in message


def test_a_long_list_of_problems_is_cut(tmp_path: Path) -> None:
    """Ten problems are named and the rest counted."""
    with pytest.raises(ConfigError, match=r"and 9 more$") as raised:
        load(write_model(tmp_path, {"model.embed_tokens.weight": torch.zeros(131, 48)}))

    assert raised.value.message.count("is missing") == 10


def test_tensors_that_repeat_the_config_are_ignored(tmp_path: Path) -> None:
    """A stored RoPE table, and a head beside tied embeddings, do no harm."""
    tensors = tiny_tensors(CONFIG) | {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8),
        "lm_head.weight": torch.zeros(131, 48),
    }

    load(write_model(tmp_path, tensors))


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ("{}", "not a safetensors index"),
        ("[" * 100_000, "not a safetensors index"),
        ('{"weight_map": {}}', "names no file"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "missing: gone.safetensors"),
        ('{"weight_map": {"a": "../other.safetensors"}}', "no safetensors file of this directory"),
        ('{"weight_map": {"a": 1}}', "no safetensors file of this directory"),
    ],
)
def test_a_bad_index_is_a_config_error(tmp_path: Path, index: str, reason: str) -> None:
    """An index that is broken, empty, or points to a missing file or out of the directory."""
    model_dir = write_model(tmp_path)
    (model_dir / "model.safetensors.index.json").write_text(index)

    with pytest.raises(ConfigError, match=reason):
        load(model_dir)


def test_missing_or_damaged_weights_are_config_errors(tmp_path: Path) -> None:
    """No file at all, and one that is no safetensors file."""
    model_dir = write_model(tmp_path)

    (model_dir / "model.safetensors").write_bytes(b"not a header")
    with pytest.raises(ConfigError, match=tmp_path.name):
        load(model_dir)
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="neither"):
        load(model_dir)


def test_the_digest_tells_models_apart(tmp_path: Path) -> None:
    """Equal files give equal digests; other weights under the same header, or another config, give others."""
    first, twin = write_model(tmp_path / "first"), write_model(tmp_path / "twin")
    tuned = write_model(tmp_path / "tuned", tiny_tensors(CONFIG, seed=1))
    scaled = write_model(tmp_path / "scaled", rope_theta=5e5)

    assert model_digest(first) == model_digest(twin)
    assert len({model_digest(path) for path in (first, tuned, scaled)}) == 3
