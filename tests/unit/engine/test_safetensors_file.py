"""Reading safetensors files, sound and hostile ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from libs.engine.safetensors_file import Array, SafetensorsError, open_safetensors

SOUND: dict[str, Any] = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def write(path: Path, header: object, data_bytes: int = 24) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(data_bytes)))
    return path


def bits(tensor: torch.Tensor) -> Array:
    return tensor.view(torch.int16).numpy().view(np.uint16)


def test_what_the_library_writes_is_read_bit_for_bit(tmp_path: Path) -> None:
    """All three types, scalars and empty tensors; bfloat16 comes as its bits."""
    noise = torch.randn(5, 7)
    saved = {"a": noise, "b": noise.half(), "c": noise.bfloat16(), "d": torch.tensor(2.5), "e": torch.zeros(0, 4)}
    save_file(saved, tmp_path / "m", metadata={"format": "pt"})

    file = open_safetensors(tmp_path / "m")

    assert {name: (entry.dtype, entry.shape) for name, entry in file.entries.items()} == {
        "a": ("F32", (5, 7)),
        "b": ("F16", (5, 7)),
        "c": ("BF16", (5, 7)),
        "d": ("F32", ()),
        "e": ("F32", (0, 4)),
    }
    for name in "abde":
        assert np.array_equal(file.array(name), saved[name].numpy())
    assert np.array_equal(file.array("c"), bits(saved["c"]))


def test_tensors_may_lie_anywhere(tmp_path: Path) -> None:
    """A header of odd length leaves the data unaligned; the arrays are aligned all the same."""
    file = open_safetensors(write(tmp_path / "m", {"tensor": SOUND, "x": SOUND}))

    assert [entry.begin % 4 for entry in file.entries.values()] != [0, 0]
    assert file.array("x").tobytes() == bytes(range(24))
    assert file.array("x").flags.aligned


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[" * 100_000,
        b"not json",
        [],
        {"x": 3},
        {"x": SOUND | {"dtype": 4}},
        {"x": SOUND | {"shape": [2, -3]}},
        {"x": SOUND | {"shape": [2, True, 3]}},
        {"x": SOUND | {"shape": [1] * 17 + [6]}},
        {"x": SOUND | {"shape": [2, 2]}},
        {"x": SOUND | {"data_offsets": [24, 0]}},
        {"x": SOUND | {"data_offsets": [0]}},
        {"x": SOUND | {"data_offsets": [4, 28]}},
        {"x": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1 << 60]}},
    ],
)
def test_a_header_that_does_not_fit_the_file_is_refused(tmp_path: Path, header: object) -> None:
    """Every length, type and bound is looked at before it is used."""
    with pytest.raises(SafetensorsError, match="m: "):
        open_safetensors(write(tmp_path / "m", header))


@pytest.mark.parametrize("content", [b"", b"\x02\0", b"\xff" * 8 + b"{}", b"\x03" + b"\0" * 7 + b"{}"])
def test_a_length_beyond_the_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, cut, and with a header longer than the file."""
    (tmp_path / "m").write_bytes(content)

    with pytest.raises(SafetensorsError, match="no header"):
        open_safetensors(tmp_path / "m")
