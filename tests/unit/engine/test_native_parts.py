"""How a checkpoint becomes the parts of a packed model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from libs.engine.model_config import load_model_config
from libs.engine.native.packed_file import Bytes
from libs.engine.native.parts import Linear, fill_parts, linears, part_sizes, rounded, to_float32
from libs.engine.rows import StepRow
from libs.engine.safetensors_file import Array
from libs.engine.tensors import open_model
from libs.engine.weights import load_weights
from tests.engines import opened, settled
from tests.unit.engine.tiny_model import CONFIG, tiny_tensors, write_model

AWKWARD = [0.0, -0.0, 1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1.0039, -3.14159, 3e38, 1e-30, float("inf"), -float("inf")]
ROWS = [StepRow([1, 2, 3], 0, [0], None)]


class Packer:
    """Packs by keeping the float32 values, row-major."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    def __call__(self, linear: Linear, source: Array, is_bfloat16: bool, packed: Bytes) -> None:
        self.seen.append((str(source.dtype), is_bfloat16))
        packed.view(np.float32)[:] = to_float32(source, is_bfloat16=is_bfloat16).reshape(-1)


def packed(model_dir: Path, dtype: str) -> tuple[Mapping[str, Bytes], Packer, list[int]]:
    config = load_model_config(model_dir)
    sizes = part_sizes(config, lambda linear: 4 * linear.outputs * linear.inputs)
    parts = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
    packer = Packer()
    return parts, packer, list(fill_parts(parts, config, open_model(model_dir, config), dtype, packer))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
        {"architectures": ["Qwen3ForCausalLM"]},
    ],
)
def test_every_part_is_what_the_torch_engine_packs(tmp_path: Path, dtype: str, changes: dict[str, Any]) -> None:
    """Norms, biases and the order in which weights are joined; every layer is counted once."""
    model_dir = write_model(tmp_path / "model", **changes)
    theirs = load_weights(model_dir, load_model_config(model_dir), getattr(torch, dtype))

    parts, _, done = packed(model_dir, dtype)

    def values(name: str) -> torch.Tensor:
        return torch.from_numpy(parts[name].view(np.float32).copy())

    assert done == [1, 2]
    assert torch.equal(values("final_norm"), theirs.final_norm_K)
    for index, layer in enumerate(theirs.layers):
        assert torch.equal(values(f"{index}.attention_norm"), layer.attention_norm_K)
        assert torch.equal(values(f"{index}.ffn_norm"), layer.ffn_norm_K)
        for kind, norm in zip(("q_norm", "k_norm"), layer.qk_norms_D or (), strict=False):
            assert torch.equal(values(f"{index}.{kind}"), norm)
        for kind, weight in (("qkv", layer.qkv), ("gate_up", layer.gate_up)):
            exact = getattr(torch, dtype)
            assert torch.equal(values(f"{index}.{kind}").to(exact).float(), weight.parts_SNE[0].reshape(-1))
        if layer.o.bias_N is not None:
            assert torch.equal(values(f"{index}.o.bias"), layer.o.bias_N)
    assert ("head" in parts) == ("tie_word_embeddings" in changes)


def test_weights_of_two_types_are_joined_in_float32(tmp_path: Path) -> None:
    """Those of one type stay in it, and are not copied through another."""
    tensors = tiny_tensors(CONFIG)
    for name, tensor in tensors.items():
        tensors[name] = tensor.half() if "k_proj" in name else tensor.bfloat16()

    parts, packer, _ = packed(write_model(tmp_path / "model", tensors), "bfloat16")

    layer = [("float32", False), ("uint16", True), ("uint16", True), ("uint16", True)]
    assert packer.seen == [("uint16", True), *layer, *layer]
    names = (f"model.layers.1.self_attn.{which}_proj.weight" for which in "qkv")
    joined = torch.cat([tensors[name].float() for name in names]).reshape(-1)
    assert np.array_equal(parts["1.qkv"].view(np.float32), joined.numpy())


def test_rounding_is_to_the_nearest_even() -> None:
    """As torch rounds, infinities and NaN included."""
    floats = torch.tensor([*AWKWARD, float("nan")])

    ours = torch.from_numpy(rounded(floats.numpy(), "bfloat16"))

    assert torch.equal(ours.nan_to_num(7.0), floats.bfloat16().float().nan_to_num(7.0))
    assert torch.equal(torch.from_numpy(rounded(floats.numpy(), "float32"))[:-1], floats[:-1])


def test_sums_are_cut_where_the_contract_says(tmp_path: Path) -> None:
    """o_proj has a segment per KV head, down_proj segments at multiples of 32, the others one."""
    config = load_model_config(write_model(tmp_path / "model"))

    cuts = {linear.name: linear.product.cuts for linear in linears(replace(config, layers=1))}

    assert cuts == {"embedding": (), "0.qkv": (), "0.o": (0, 32, 64), "0.gate_up": (), "0.down": (0, 32, 64, 80)}


def test_engines_share_one_packed_file(tmp_path: Path) -> None:
    """The second maps what the first packed, and both give the bits of private memory."""
    kernels, model_dir = settled("native"), write_model(tmp_path / "model")
    directory = tmp_path / "packed"

    engines = [opened(kernels, model_dir, blocks=1, packed_dir=where) for where in (directory, directory, None)]

    logits = [engine.engine.logits(ROWS) for engine in engines]
    assert len(list(directory.iterdir())) == 1
    assert np.array_equal(logits[0], logits[1]) and np.array_equal(logits[0], logits[2])


def test_without_a_usable_directory_weights_are_private(tmp_path: Path) -> None:
    """A worker serves all the same."""
    (tmp_path / "file").touch()
    model_dir = write_model(tmp_path / "model")

    engine = opened(settled("native"), model_dir, blocks=1, packed_dir=tmp_path / "file" / "below").engine

    assert np.isfinite(engine.logits(ROWS)).all()
