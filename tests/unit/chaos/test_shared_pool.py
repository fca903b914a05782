"""The fake engine's pool finds every slot that does not hold what its row stands on."""

import os
from collections.abc import Iterator

import pytest

from libs.runtime.pool_file import create_pool
from tests.fakes.shared_pool import SharedPool
from tests.fakes.worker_process import LAYOUT

TABLE = (3, 1)
IDS = tuple(range(100, 120))  # a block and a quarter


@pytest.fixture
def found() -> list[str]:
    return []


@pytest.fixture
def pool(found: list[str]) -> Iterator[SharedPool]:
    fd = create_pool(LAYOUT, 4)
    pool = SharedPool(fd, LAYOUT, found.append)
    pool.write(TABLE, 0, IDS)
    pool.publish(TABLE, 0, len(IDS))
    yield pool
    os.close(fd)


def test_a_sequence_reads_back_as_written(pool: SharedPool, found: list[str]) -> None:
    """Also when it was written in two parts."""
    pool.write(TABLE, 20, (7, 8))
    pool.publish(TABLE, 20, 2)

    assert tuple(pool.read(TABLE, 22)) == (*IDS, 7, 8)
    pool.check_filled(TABLE, 22)
    assert found == []


def test_a_copied_tail_is_as_good_as_the_first(pool: SharedPool, found: list[str]) -> None:
    """The copy goes on by itself."""
    pool.copy(1, 0, 4)

    assert tuple(pool.read((3, 0), 20)) == IDS
    pool.check_filled((3, 0), 20)
    assert found == []


def test_a_block_of_another_sequence_is_found(pool: SharedPool, found: list[str]) -> None:
    """Reused too early, it holds the same positions of other ids."""
    pool.write((2, 1), 0, tuple(range(500, 520)))

    pool.read(TABLE, 20)

    assert found


def test_one_overwritten_slot_is_found(pool: SharedPool, found: list[str]) -> None:
    """A fenced writer that wrote one token too many."""
    pool.write(TABLE, 5, (9,))

    pool.read(TABLE, 20)

    assert found


def test_a_slot_that_was_never_published_is_found(pool: SharedPool, found: list[str]) -> None:
    """A row may stand only on what fill counts cover."""
    pool.reset((1,))

    pool.check_filled(TABLE, 20)

    assert found
