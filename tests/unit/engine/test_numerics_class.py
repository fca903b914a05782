"""The name of a numerics class."""

import torch

from libs.engine.torch_class import probe_digest, torch_class


def test_the_name_tells_everything_that_changes_bits() -> None:
    """Family, types, kernels, probe, segments and piece length, and the same each time."""
    name = torch_class("bfloat16", "bfloat16")
    family, dtype, kv_dtype, kernels, probe, segments, pieces = name.split("/")

    assert (family, dtype, kv_dtype, segments, pieces) == ("torch", "bfloat16", "bfloat16", "o:kv,down:8", "S256")
    assert len(kernels) == len(probe) == 12
    assert name == torch_class("bfloat16", "bfloat16")


def test_the_probe_sees_a_change_of_arithmetic() -> None:
    """Another type of weights or of KV gives another hash."""
    types = (torch.float32, torch.bfloat16)

    assert len({probe_digest(dtype, kv_dtype) for dtype in types for kv_dtype in types}) == 4
