"""What it costs to take a sequence from its worker, in seconds of that worker: by rates that its steps have shown.

A swap moves its private blocks out and back; a recompute does the tokens in them again. Both are time in which nobody
else on that worker steps. Waiting is free of work, but those who are out of blocks stand still until another ends.
"""

from dataclasses import dataclass

COST = "cost"
SWAP = "swap"
RECOMPUTE = "recompute"
WAIT = "wait"

FIRST_BLOCK_S = 0.0005  # while no swap is reported: some hundred kilobytes, at a gigabyte a second
FIRST_TOKEN_S = 0.001  # while no prompt is computed
UNKNOWN = 100.0  # times: a worker is not taken for dead because its first swap is slower than the guess
RATE = 0.3  # of what the latest report says


@dataclass(slots=True)
class SwapRates:
    """Seconds per block, each way; exponentially weighted means of reports."""

    out_s: float = FIRST_BLOCK_S
    in_s: float = FIRST_BLOCK_S
    outs: int = 0
    ins: int = 0

    def predict_s(self, out_blocks: int, in_blocks: int) -> float:
        """How long they take; while nothing was measured, for all that is known, long."""
        seconds = out_blocks * self.out_s + in_blocks * self.in_s
        return seconds if self.outs else seconds * UNKNOWN

    def report(self, *, inward: bool, blocks: int, seconds: float) -> None:
        if not blocks:
            return
        block_s = seconds / blocks
        if inward:
            self.ins += 1
            self.in_s += max(RATE, 1 / self.ins) * (block_s - self.in_s)
        else:
            self.outs += 1
            self.out_s += max(RATE, 1 / self.outs) * (block_s - self.out_s)
            if not self.ins:
                self.in_s = self.out_s  # the better guess, until something has come back


@dataclass(slots=True)
class PrefillRate:
    """Seconds per token of steps with prompt tokens in them, a worker's. Likewise a mean."""

    token_s: float = FIRST_TOKEN_S
    reports: int = 0

    def report(self, tokens: int, seconds: float) -> None:
        self.reports += 1
        self.token_s += max(RATE, 1 / self.reports) * (seconds / tokens - self.token_s)


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one victim. `swap_s` is infinite where the tier has no room, `wait_s` where nobody is known to end."""

    swap_s: float
    recompute_s: float
    wait_s: float


def costs(rates: SwapRates, *, blocks: int, tokens: int, token_s: float, wait_s: float, has_room: bool) -> Costs:
    """`tokens` are those that lie in the `blocks` to move."""
    swap_s = blocks * (rates.out_s + rates.in_s) if has_room else float("inf")
    return Costs(swap_s, tokens * token_s, wait_s)


def choose(preemption: str, costs: Costs) -> str:
    """SWAP, RECOMPUTE or WAIT: the cheapest, or what is asked for where it is possible."""
    can_swap = costs.swap_s < float("inf")
    if preemption != COST:
        return SWAP if preemption == SWAP and can_swap else RECOMPUTE
    if costs.wait_s <= min(costs.swap_s, costs.recompute_s):
        return WAIT
    return SWAP if costs.swap_s <= costs.recompute_s else RECOMPUTE
