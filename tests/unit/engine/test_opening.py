"""Opening an engine over a pool that must fit it."""

from pathlib import Path

import pytest

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import CPU_TILE_TAGS, TILE_TAG_PLAIN, KvLayout
from libs.engine.engine_spec import EngineSpec, OpenEngine, Private, Shared
from libs.engine.model_config import load_model_config
from libs.engine.opening import open_engine
from tests.engines import FAMILIES, opened, settled
from tests.unit.engine.tiny_model import write_model


def attach(kernels: str, model_dir: Path, layout: KvLayout) -> OpenEngine:
    """Over a pool file of this layout."""
    path = model_dir.parent / "pool"
    path.write_bytes(layout.pack_header(3).ljust(layout.pool_bytes(3), b"\0"))
    spec = EngineSpec(kernels=kernels, model_path=model_dir, dtype="float32", threads=1)
    return open_engine(spec, load_model_config(model_dir), Shared(path), lambda done, total: None)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_attaches_to_pools_with_its_own_tiles(tmp_path: Path, family: str) -> None:
    """The other family's are refused, as are those of other models."""
    kernels, model_dir = settled(family), write_model(tmp_path / "model")
    tags = [TILE_TAG_PLAIN, CPU_TILE_TAGS["float32"]]
    own, foreign = tags if family == "torch" else tags[::-1]

    assert attach(kernels, model_dir, KvLayout(2, 2, 16, 16, "float32", own)).pool.blocks == 3
    for other in (KvLayout(2, 2, 16, 16, "float32", foreign), KvLayout(2, 1, 16, 16, "float32", own)):
        with pytest.raises(ConfigError, match="another KV layout"):
            attach(kernels, model_dir, other)


@pytest.mark.parametrize(("dtype", "block_tokens"), [("float16", 16), ("float32", 17)])
def test_what_no_pool_can_hold_is_a_config_error(tmp_path: Path, dtype: str, block_tokens: int) -> None:
    """Whatever the kernels."""
    model_dir = write_model(tmp_path / "model")
    spec = EngineSpec(kernels="torch", model_path=model_dir, dtype=dtype, threads=1, block_tokens=block_tokens)

    with pytest.raises(ConfigError):
        open_engine(spec, load_model_config(model_dir), Private(1), lambda done, total: None)


@pytest.mark.parametrize("dtype", ["int8", "int8w"])
def test_integers_are_classes_of_their_own(tmp_path: Path, dtype: str) -> None:
    """Over bfloat16 KV, and on native kernels only."""
    kernels, model_dir = settled("native"), write_model(tmp_path / "model")
    names = [opened(kernels, model_dir, one, blocks=1).numerics_class.split("/") for one in (dtype, "bfloat16")]

    assert names[0][1:3] == [dtype, "bfloat16"]
    assert names[0][4] != names[1][4]
    with pytest.raises(ConfigError, match="takes native kernels"):
        opened("torch", model_dir, dtype, blocks=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_class_tells_the_family(tmp_path: Path, family: str) -> None:
    """Work never crosses between families, types or kernels; seven fields, the same each time."""
    kernels, model_dir = settled(family), write_model(tmp_path / "model")
    names = [opened(kernels, model_dir, dtype, blocks=1).numerics_class for dtype in ("float32", "bfloat16", "float32")]

    assert names[0] == names[2] and names[0].split("/")[4] != names[1].split("/")[4]
    assert names[0].split("/")[:3] == [kernels.removeprefix("native:"), "float32", "float32"]
    assert [len(part) for part in names[0].split("/")[3:5]] == [12, 12]
    assert names[0].split("/")[5:] == ["o:kv,down:8", "S256"]
