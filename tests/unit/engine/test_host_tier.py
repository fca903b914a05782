"""Blocks on their way to the host tier and back, whatever the kernels that use the pool."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import KvLayout
from libs.engine.counted_pool import CountedPool
from libs.engine.host_tier import MappedTier
from libs.engine.native.pool import NativePool
from libs.engine.pool import KvPool
from libs.runtime.pool_file import create_pool, create_pool_at

LAYOUT = KvLayout(layers=2, kv_heads=3, head_dim=8, block_tokens=16, dtype="bfloat16")
HOST_BLOCKS = 3


@pytest.fixture(params=[KvPool, NativePool])
def pool(request: pytest.FixtureRequest) -> CountedPool:
    """A pool of five blocks with something in each."""
    kind: type[CountedPool] = request.param
    pool = kind.private(LAYOUT, 5)
    pool.bytes_NB[:] = np.random.default_rng(1).integers(0, 256, pool.bytes_NB.shape, np.uint8)
    pool.fill_counts_N[:] = (16, 16, 5, 0, 9)
    return pool


def test_a_block_comes_back_bit_for_bit_in_another_place(pool: CountedPool) -> None:
    """With its fill count, through a second attachment as well, and nothing beside it is touched."""
    fd = create_pool(LAYOUT, HOST_BLOCKS)
    ours, theirs = MappedTier.attach(fd, pool), MappedTier.attach(fd, pool)
    os.close(fd)
    before = pool.bytes_NB.copy()

    ours.swap_out(2, 1)
    pool.bytes_NB[2] = 0
    theirs.swap_in(4, 1)

    assert ours.blocks == HOST_BLOCKS
    assert (pool.bytes_NB[4] == before[2]).all() and pool.fill_counts_N.tolist() == [16, 16, 5, 0, 5]
    assert (pool.bytes_NB[[0, 1, 3]] == before[[0, 1, 3]]).all()


def test_a_tier_in_a_file_has_no_name_and_all_its_space(pool: CountedPool, tmp_path: Path) -> None:
    """It serves as memory does, and is gone with its last descriptor; a file that is there is not taken."""
    path = tmp_path / "tier"
    fd = create_pool_at(path, LAYOUT, HOST_BLOCKS)
    tier = MappedTier.attach(fd, pool)
    status = os.fstat(fd)
    os.close(fd)
    before = pool.bytes_NB[0].copy()
    tier.swap_out(0, 2)
    tier.swap_in(3, 2)

    assert (pool.bytes_NB[3] == before).all()
    assert not path.exists() and status.st_blocks * 512 >= status.st_size == LAYOUT.pool_bytes(HOST_BLOCKS)
    path.touch()
    with pytest.raises(ConfigError, match="exists"):
        create_pool_at(path, LAYOUT, HOST_BLOCKS)


def test_a_tier_of_another_layout_is_refused(pool: CountedPool) -> None:
    """Its blocks would not be ours."""
    fd = create_pool(KvLayout(layers=1, kv_heads=3, head_dim=8, block_tokens=16, dtype="bfloat16"), HOST_BLOCKS)
    with pytest.raises(ConfigError, match="layout"):
        MappedTier.attach(fd, pool)
    os.close(fd)


def test_a_slow_tier_takes_its_time(pool: CountedPool) -> None:
    """At so many bytes a second: what a bench plays a slow device with."""
    fd = create_pool(LAYOUT, HOST_BLOCKS)
    tier = MappedTier.attach(fd, pool, bytes_per_s=LAYOUT.block_bytes / 0.02)
    os.close(fd)

    started_s = time.monotonic()
    tier.swap_out(0, 0)

    assert time.monotonic() - started_s >= 0.02
