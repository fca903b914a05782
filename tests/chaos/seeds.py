"""Seeds that failed once. They are run every time, first."""

from typing import Final

import pytest

WORLD: Final[tuple[int, ...]] = (14,)  # an alarm that came a rounding too early was set again for ever
STACK: Final[tuple[int, ...]] = ()


def chosen(config: pytest.Config, kept: tuple[int, ...], count_option: str) -> list[int]:
    """The one of --nemesis-seed; else those kept, and as many more as the option says."""
    one = config.getoption("--nemesis-seed")
    return [one] if one is not None else list(dict.fromkeys((*kept, *range(config.getoption(count_option)))))
