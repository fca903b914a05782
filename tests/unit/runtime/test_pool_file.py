"""A KV pool's shared memory: its header, its size, and that nobody can shrink it."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from libs.contracts.errors import ConfigError
from libs.contracts.kv_layout import FILL_COUNTS_OFFSET, KvLayout
from libs.runtime.pool_file import create_pool, hold_pool_at, is_used

LAYOUT = KvLayout(layers=2, kv_heads=1, head_dim=4, block_tokens=16, dtype="float32")
BLOCKS = 8


@pytest.fixture
def pool() -> Iterator[int]:
    """A small pool's descriptor."""
    fd = create_pool(LAYOUT, BLOCKS)
    yield fd
    os.close(fd)


def test_a_worker_finds_the_pool_it_expects(pool: int) -> None:
    """The header tells layout and size, and every fill count starts at 0."""
    header = os.pread(pool, LAYOUT.header_bytes(BLOCKS), 0)

    assert LAYOUT.check_header(header, os.fstat(pool).st_size) == BLOCKS
    assert header[FILL_COUNTS_OFFSET : FILL_COUNTS_OFFSET + 4 * BLOCKS] == bytes(4 * BLOCKS)


def test_all_its_memory_is_there_from_the_start(pool: int) -> None:
    """No write can meet a page that the host does not have."""
    status = os.fstat(pool)

    assert status.st_size == LAYOUT.pool_bytes(BLOCKS)
    assert status.st_blocks * 512 >= status.st_size


@pytest.mark.parametrize("size_bytes", [0, 1 << 20])
def test_its_size_is_sealed(pool: int, size_bytes: int) -> None:
    """A process that holds it can neither cut nor grow it under the others."""
    with pytest.raises(PermissionError):
        os.ftruncate(pool, size_bytes)


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """Whatever the code under test tries, the kernel refuses a file of more than 1 MiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files_only")
@pytest.mark.parametrize(("blocks", "reason"), [(1 << 24, "this host has"), (8, "cannot allocate")])
def test_a_pool_that_does_not_fit_is_a_config_error(blocks: int, reason: str) -> None:
    """More than the host has is not even tried: the kernel would kill others for it. No descriptor is left behind."""
    large = KvLayout(layers=32, kv_heads=8, head_dim=128, block_tokens=64, dtype="float32")
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(ConfigError, match=reason):
        create_pool(replace(large, layers=1) if blocks == 8 else large, blocks)

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_use_is_known_while_its_process_lives(pool: int) -> None:
    """Of this incarnation and no other; the kernel forgets it with the process."""
    used, other = "0f" * 16, "f0" * 16
    code = f"from libs.runtime.pool_file import mark_use; mark_use({pool}, {used!r}); print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(pool,)
    )
    with child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == b"\n"
        assert is_used(pool, used) and not is_used(pool, other)
        child.stdin.write(b"\n")
    assert not is_used(pool, used)


def test_a_pool_of_a_name_outlives_its_holder(tmp_path: Path) -> None:
    """Its workers go on with it, so a holder that starts again leaves it as it is; another layout's makes way."""
    path, layout = tmp_path / "kv", LAYOUT
    assert hold_pool_at(path, layout, 3) == 3
    born = path.stat()

    assert hold_pool_at(path, layout, 5) == 3, "workers may be using it"
    assert path.stat().st_ino == born.st_ino and born.st_size == layout.pool_bytes(3)
    assert hold_pool_at(path, replace(layout, layers=layout.layers + 1), 2) == 2
    assert path.stat().st_ino != born.st_ino
    assert [entry.name for entry in tmp_path.iterdir()] == ["kv"]


def test_a_pool_of_a_name_without_room_is_a_config_error(tmp_path: Path) -> None:
    """The folder is left as it was."""
    with pytest.raises(ConfigError, match="no room"):
        hold_pool_at(tmp_path / "none" / "kv", LAYOUT, 3)
