"""Attaching to a pool and keeping its fill counts, whatever the kernels that use it."""

import mmap
import os
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import KvLayout
from libs.engine.counted_pool import CountedPool
from libs.engine.native.pool import NativePool
from libs.engine.pool import KvPool
from libs.runtime.pool_file import create_pool

LAYOUT = KvLayout(layers=2, kv_heads=3, head_dim=8, block_tokens=16, dtype="bfloat16")
BLOCKS = 5

Kind = type[CountedPool]


@pytest.fixture(params=[KvPool, NativePool])
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


def block_bytes(pool: CountedPool) -> npt.NDArray[np.uint8]:
    """[N, bytes of a block], to read and to write."""
    return pool.bytes_NB


def write_pool(path: Path, layout: KvLayout = LAYOUT, blocks: int = BLOCKS) -> Path:
    path.write_bytes(layout.pack_header(blocks))
    with path.open("r+b") as file:
        file.truncate(layout.pool_bytes(blocks))
    return path


def test_two_attachments_share_bytes_and_fill_counts(tmp_path: Path) -> None:
    """What one process writes the other reads, by path or by descriptor, at the offsets of the layout."""
    path = write_pool(tmp_path / "pool")
    ours = KvPool.attach(path, LAYOUT)
    with path.open("r+b") as file:
        theirs = KvPool.attach(file.fileno(), LAYOUT)

    ours.kv_NLCHTD[4, 1, 1, 2, 15, 7] = 2.5
    ours.publish([4], 0, 16)

    assert theirs.kv_NLCHTD.shape == (BLOCKS, 2, 2, 3, 16, 8)
    assert theirs.kv_NLCHTD[4, 1, 1, 2, 15, 7] == 2.5
    assert theirs.fill_counts_N.tolist() == [0, 0, 0, 0, 16]
    assert path.read_bytes()[-2:] == b"\x20\x40"  # the last element of the file: bfloat16 2.5


def test_no_step_is_the_first_to_touch_a_page(kind: Kind) -> None:
    """Writing every page of an attached pool takes hardly a page fault."""
    descriptor = create_pool(LAYOUT, 1000)
    pool = kind.attach(descriptor, LAYOUT)
    os.close(descriptor)
    every_page = block_bytes(pool).reshape(-1)[:: mmap.PAGESIZE]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    every_page[:] = 1

    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < len(every_page) // 10


@pytest.mark.parametrize("change", [{"layers": 3}, {"block_tokens": 32}, {"dtype": "float32"}, {"tile_tag": "vnni"}])
def test_another_layout_is_refused(kind: Kind, tmp_path: Path, change: dict[str, object]) -> None:
    """A pool made for other shapes, types or tiles does not attach."""
    path = write_pool(tmp_path / "pool")

    with pytest.raises(ConfigError, match="another KV layout"):
        kind.attach(path, replace(LAYOUT, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "header"), (b"\0" * 8192, "not a KV pool"), (LAYOUT.pack_header(BLOCKS) + b"\0" * 4096, "smaller")],
)
def test_a_file_that_is_no_whole_pool_is_refused(kind: Kind, tmp_path: Path, content: bytes, reason: str) -> None:
    """Empty, foreign and truncated files are config errors, never a later bus error."""
    (tmp_path / "pool").write_bytes(content)

    with pytest.raises(ConfigError, match=reason):
        kind.attach(tmp_path / "pool", LAYOUT)


def test_a_missing_file_is_a_config_error(kind: Kind, tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(ConfigError, match="absent"):
        kind.attach(tmp_path / "absent", LAYOUT)


def test_committed_means_every_block_holds_its_tokens(kind: Kind) -> None:
    """A table is committed up to what was published through it, and not one token further."""
    pool = kind.private(LAYOUT, BLOCKS)
    table = [3, 1, 0]

    pool.publish(table, 0, 20)
    pool.publish(table, 20, 1)

    assert pool.fill_counts_N.tolist() == [0, 5, 0, 16, 0]
    assert [pool.is_committed(table, tokens) for tokens in (0, 16, 21, 22, 48)] == [True, True, True, False, False]
    assert not pool.is_committed([3], 17)


def test_reset_makes_blocks_fresh(kind: Kind) -> None:
    """A granted block starts at 0 whatever it held."""
    pool = kind.private(LAYOUT, BLOCKS)
    pool.publish([0, 1], 0, 32)

    pool.reset([1])

    assert pool.fill_counts_N.tolist() == [16, 0, 0, 0, 0]


def test_a_copy_holds_no_more_than_its_source() -> None:
    """The first tokens move with their fill count; asking for unwritten ones copies what is there."""
    pool = KvPool.private(LAYOUT, BLOCKS)
    pool.kv_NLCHTD.copy_(torch.randn(pool.kv_NLCHTD.shape))
    pool.publish([0], 0, 10)
    last = pool.kv_NLCHTD[1, :, :, :, 4:].clone()

    pool.copy(0, 1, 4)
    pool.copy(0, 2, 16)

    assert pool.fill_counts_N.tolist() == [10, 4, 10, 0, 0]
    assert torch.equal(pool.kv_NLCHTD[1, :, :, :, :4], pool.kv_NLCHTD[0, :, :, :, :4])
    assert torch.equal(pool.kv_NLCHTD[1, :, :, :, 4:], last)


def test_both_kinds_share_header_counts_and_bytes(tmp_path: Path) -> None:
    """Attached to one pool they see the same blocks; only what a block's bytes mean is their own."""
    path = write_pool(tmp_path / "pool")
    torchs, natives = KvPool.attach(path, LAYOUT), NativePool.attach(path, LAYOUT)

    block_bytes(natives)[3] = 7
    natives.publish([3], 0, 16)

    assert torchs.fill_counts_N.tolist() == [0, 0, 0, 16, 0]
    assert np.array_equal(block_bytes(torchs), block_bytes(natives))
    assert block_bytes(torchs)[3].min() == 7 and not block_bytes(torchs)[:3].any()


def test_a_native_copy_takes_the_whole_block_and_counts_what_was_asked() -> None:
    """A tile interleaves its tokens; nobody reads beyond the fill count."""
    pool = NativePool.private(LAYOUT, BLOCKS)
    pool.blocks_NB[0] = np.arange(LAYOUT.block_bytes) % 251
    pool.publish([0], 0, 10)

    pool.copy(0, 1, 4)
    pool.copy(0, 2, 16)

    assert pool.fill_counts_N.tolist() == [10, 4, 10, 0, 0]
    assert np.array_equal(pool.blocks_NB[1], pool.blocks_NB[0]) and np.array_equal(pool.blocks_NB[2], pool.blocks_NB[0])
