"""What unit tests of several folders share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """The command sends logs to the stderr of its moment; the tests that follow have another."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
