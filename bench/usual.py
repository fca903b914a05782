"""Waits for the machine to be as it usually is: what a shared one can do changes from second to second.

Two runs are only compared where the machine was the same for both. Of runs that begin whenever their turn comes, most
pairs would have to be dropped; so each waits, for some seconds at most, until a probe is like the median of the last.
"""

import asyncio
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from bench.figures import differ
from bench.limits import Machine
from bench.summary import MAX_PROBE_DIFFERENCE

SEEN: Final = 15  # probes that say what is usual: the machine may change for good
LEAST_SEEN: Final = 7
TRIES: Final = 20
PAUSE_S: Final = 0.3
TRIES_AFTER: Final = 4  # what disturbs one probe has passed by then, and a machine that has changed has not
ALIKE: Final = 0.045  # two runs that each differ from the usual by no more differ from each other by less than a tenth


class UsualMachine:
    """`take` probes what the machine can do at this moment."""

    def __init__(self, take: Callable[[], Machine]) -> None:
        self._take = take
        self._seen: deque[Machine] = deque(maxlen=SEEN)

    async def wait(self) -> Machine:
        """The last probe: one as usual, or, after so many tries, whatever it is."""
        for _ in range(TRIES):
            machine = self._take()
            self._seen.append(machine)
            if self._is_usual(machine):
                break
            await asyncio.sleep(PAUSE_S)
        return machine

    def after(self, before: Machine) -> Machine:
        """The first probe like `before`, or, where none of a few is, the last: the machine has changed meanwhile."""
        for _ in range(TRIES_AFTER):
            machine = self._take()
            self._seen.append(machine)
            if differ(asdict(machine), asdict(before)) <= MAX_PROBE_DIFFERENCE:
                break
        return machine

    def _is_usual(self, machine: Machine) -> bool:
        if len(self._seen) < LEAST_SEEN:
            return False
        read_bytes_s = statistics.median(seen.read_bytes_s for seen in self._seen)
        matrix_ops_s = statistics.median(seen.matrix_ops_s for seen in self._seen)
        return differ(asdict(machine), asdict(Machine(read_bytes_s, matrix_ops_s))) <= ALIKE
