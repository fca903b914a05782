"""What `headrace up` settles from its options, the model and the machine before anything is started."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local import network
from deploy.local import stack as stack_module
from deploy.local.options import NamedModel, UpOptions, check_options
from deploy.local.run_dir import RunDir
from deploy.local.stack import settle
from libs.contracts.errors import ConfigError
from tests.engines import settled
from tests.unit.engine.tiny_model import CONFIG, write_model


def options(tmp_path: Path, dtype: str, kernels: str) -> UpOptions:
    model_dir = write_model(tmp_path / "model")
    return UpOptions(run_dir=tmp_path, model_dir=model_dir, dtype=dtype, kernels=kernels, kv_blocks=3, port=0)


@pytest.mark.parametrize("dtype", ["int8", "int8w"])
def test_a_pool_for_weights_of_eight_bits_is_bfloat16(tmp_path: Path, dtype: str) -> None:
    """In the tiles of the native kernels, which alone take such weights."""
    asked = options(tmp_path, dtype, settled("native"))
    check_options(asked)

    stack = settle(asked, RunDir(tmp_path))
    os.close(stack.cell.pool_fd)

    assert (stack.cell.layout.dtype, stack.cell.layout.tile_tag) == ("bfloat16", "cpu-vnni16")


def test_torch_is_refused_with_weights_of_eight_bits(tmp_path: Path) -> None:
    """At the command, not when a worker loads."""
    with pytest.raises(ConfigError, match="dtype int8 takes native kernels"):
        settle(options(tmp_path, "int8", "torch"), RunDir(tmp_path))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"type": "banana"}}, r"rope_scaling\.rope_type"),
        ({"num_hidden_layers": "x"}, "num_hidden_layers"),
    ],
)
def test_a_model_that_is_not_computed_is_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    """At the command, before anything is started, with the key that says so."""
    model_dir = write_model(tmp_path / "model")
    (model_dir / "config.json").write_text(json.dumps(CONFIG | changes))

    with pytest.raises(ConfigError, match=named):
        settle(UpOptions(run_dir=tmp_path, model_dir=model_dir, kernels="torch", port=0), RunDir(tmp_path))


def test_the_broker_takes_no_port_of_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port is free until somebody listens: the system may offer one twice that is spoken for."""
    offered = iter([7001, 7001, 7002, 7003])
    for module in (network, stack_module):
        monkeypatch.setattr(module, "usable_port", lambda host, port: next(offered))
    asked = replace(options(tmp_path, "float32", "torch"), overrides={"gateway": {"grpc_port": "7002"}})

    stack = settle(asked, RunDir(tmp_path))
    os.close(stack.cell.pool_fd)

    assert (stack.gateway_port, stack.nats_port) == (7001, 7003)


def test_scaled_positions_serve_a_longer_context(tmp_path: Path) -> None:
    """The context is what the scaling gives, not what the model was trained for."""
    asked = replace(options(tmp_path, "float32", "torch"), model_dir=tmp_path / "yarn")
    write_model(asked.model_dir, rope_scaling={"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024})

    stack = settle(asked, RunDir(tmp_path))
    os.close(stack.cell.pool_fd)

    assert stack.cell.max_model_len == 4096


def test_models_share_what_the_machine_has(tmp_path: Path) -> None:
    """Each has a pool of its own layout and a part of the cores; equal names are refused."""
    asked = options(tmp_path, "float32", "torch")
    other = write_model(tmp_path / "other", num_hidden_layers=1)
    asked = replace(asked, model="a", more_models=(NamedModel("b", other),))
    check_options(asked)

    stack = settle(asked, RunDir(tmp_path))
    for fd in stack.pool_fds:
        os.close(fd)

    assert [(cell.name, cell.layout.layers, cell.blocks) for cell in stack.cells] == [("c0", 2, 3), ("c1", 1, 3)]
    assert stack.cores == max(1, len(os.sched_getaffinity(0)) // 2)
    with pytest.raises(ConfigError, match="--served-model-name"):
        check_options(replace(asked, more_models=(NamedModel("a", other),)))
    with pytest.raises(ConfigError, match="--host-tier"):
        check_options(replace(asked, host_tier=tmp_path / "tier", host_blocks=1))


def test_the_host_tier_is_made_like_the_pool(tmp_path: Path) -> None:
    """Of as many blocks as were asked for, in memory or in a file; a file without blocks is refused."""
    asked = replace(options(tmp_path, "float32", "torch"), host_blocks=2, host_tier=tmp_path / "tier")
    stack = settle(asked, RunDir(tmp_path))

    assert stack.cell.tier_fd is not None
    assert os.fstat(stack.cell.tier_fd).st_size == stack.cell.layout.pool_bytes(2)
    for fd in stack.pool_fds:
        os.close(fd)
    with pytest.raises(ConfigError, match="--host-blocks"):
        check_options(replace(asked, host_blocks=0))
