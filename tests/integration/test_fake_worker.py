"""What the scheduler's tests rely on in the workers that they start."""

from pathlib import Path

from tests.integration.fake_worker import MappedPool


def test_workers_that_begin_at_once_share_one_whole_pool(tmp_path: Path) -> None:
    """One has made the file, and not yet given it a size, when another opens it."""
    path = tmp_path / "pool"
    path.touch()

    MappedPool(path).write(1, 0, [5, 6])

    assert list(MappedPool(path).read([1], 2)) == [5, 6]
