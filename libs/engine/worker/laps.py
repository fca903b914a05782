"""Where the time of a worker's step thread goes, while somebody asks: a lap goes to what was just done, so the laps of
a profile add up to its time. While nobody asks a lap is one branch, and the clock is not read.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from libs.engine.op_times import OpTimes

IDLE = "idle"  # nobody is here
AWAIT_ORDER = "link;await order"  # somebody is, and may not advance until the scheduler says so
ORDERS = "link;orders"  # taken in, versions and their copies with them
REPORTS = "link;reports"  # handed to the event loop
COPIES = "copies"  # of blocks: prefixes, and swaps to and from the host's tier
ROWS = "python;rows"
ENGINE = "python;engine"  # rows to the kernels' structures and back, and waiting for the interpreter
ABSORB = "python;absorb"
KERNELS = "kernels"


@dataclass(frozen=True, slots=True)
class Profile:
    """`laps_ns` by path, its parts parted by semicolons; they add up to `duration_ns`."""

    duration_ns: int
    steps: int
    batch_tokens: int
    laps_ns: Mapping[str, int]


class Laps:
    """Owned by the step thread."""

    def __init__(self, now_ns: Callable[[], int], ops: OpTimes | None = None) -> None:
        """Without `ops` an engine's step is one piece."""
        self.now_ns, self._ops = now_ns, ops
        self._laps_ns: Counter[str] | None = None
        self._began_ns = self._at_ns = 0
        self._steps = self._batch_tokens = 0

    def begin(self) -> None:
        self._laps_ns, self._steps, self._batch_tokens = Counter(), 0, 0
        if self._ops is not None:
            self._ops.watch()
        self._began_ns = self._at_ns = self.now_ns()

    def lap(self, path: str) -> None:
        """What was done since the last lap was this."""
        if self._laps_ns is not None:
            at_ns = self.now_ns()
            self._laps_ns[path] += at_ns - self._at_ns
            self._at_ns = at_ns

    def step(self, batch_tokens: int) -> None:
        """As a lap of the engine, which has stepped so many tokens."""
        if self._laps_ns is not None:
            self._steps += 1
            self._batch_tokens += batch_tokens
            self.lap(ENGINE)

    def end(self) -> Profile:
        """What is under way is nobody's, and not in it. Only after `begin`."""
        assert self._laps_ns is not None
        laps_ns, self._laps_ns = self._laps_ns, None
        if self._ops is None:
            laps_ns[KERNELS] = laps_ns.pop(ENGINE, 0)
        else:
            for op, op_ns in self._ops.unwatch().items():
                laps_ns[f"{KERNELS};{op}"] = op_ns
                laps_ns[ENGINE] -= op_ns
        laps = {path: lap_ns for path, lap_ns in laps_ns.items() if lap_ns > 0}
        return Profile(self._at_ns - self._began_ns, self._steps, self._batch_tokens, laps)
