"""What an engine tells of the time of its kernels, if it counts that. Pure."""

from collections.abc import Mapping
from typing import Protocol


class OpTimes(Protocol):
    def watch(self) -> None:
        """Count from here on: a look at the clock for each op. While nobody watches that is a branch."""

    def unwatch(self) -> Mapping[str, int]:
        """Count until here. Wall nanoseconds of each op; they run one after the other."""
