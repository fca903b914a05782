"""Which pool a worker attaches to, and how its cell tells pools apart."""

import os
from pathlib import Path

import pytest

from libs.contracts.errors import ConfigError
from libs.engine.worker.pool_source import pool_name, pool_source


def test_a_setting_names_a_descriptor_or_a_path() -> None:
    """The supervisor passes descriptors; elsewhere a pool is a file."""
    assert pool_source("fd:7") == 7
    assert pool_source("/dev/shm/pool") == Path("/dev/shm/pool")


@pytest.mark.parametrize("wrong", ["fd:", "fd:x", "fd:-1"])
def test_a_descriptor_is_a_number(wrong: str) -> None:
    """Anything else stops the process at its start."""
    with pytest.raises(ConfigError):
        pool_source(wrong)


def test_descriptors_of_one_memory_have_one_name() -> None:
    """Two workers with other numbers for the same pool share its blocks; another pool's are not theirs."""
    first, other = os.memfd_create("a"), os.memfd_create("b")
    second = os.dup(first)
    try:
        assert pool_name("h", first) == pool_name("h", second) != pool_name("h", other)
        assert pool_name("h", first) != pool_name("elsewhere", first)
    finally:
        for descriptor in (first, second, other):
            os.close(descriptor)


def test_a_pool_that_is_not_there_is_a_matter_of_settings() -> None:
    """Starting again would not help."""
    with pytest.raises(ConfigError):
        pool_name("h", Path("/no/such/pool"))
