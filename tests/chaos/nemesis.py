"""Faults drawn from a seed, struck at a real stack with the fake engine while clients stream.

What is struck and when is a function of the seed; what the processes then make of it is theirs. `gateway` is a class of
faults of its own: its clients may see it. Whatever else is struck, nobody may see anything but a wait.
"""

import asyncio
import signal
import time
from dataclasses import dataclass
from random import Random
from typing import Final

from libs.runtime.failpoints import POINTS
from tests.chaos.history import History
from tests.chaos.lane import Lane
from tests.chaos.matrix import requests

RESTS_WITHIN_S: Final = 40.0
FAULTS: Final = (1, 3)  # fewest and most of one schedule
SPREAD_S: Final = 0.6  # they begin within this time
FREEZE_S: Final = (0.2, 1.2, 1.8)
DELAY_S: Final = (0.05, 0.3)
PASSES_MAX: Final = 6
GATEWAY_SHARE: Final = 0.15  # of all schedules
STRUCK: Final = ("decode_worker", "decode_worker", "prefill_worker", "tokenizer", "scheduler", "valkey")
UNREADABLE_FRAMES: Final = ("worker.frame.before", "gateway.frame.in")
OWNERS: Final = {"gateway": "gateway", "tokenizer": "tokenizer", "scheduler": "scheduler", "worker": "decode_worker"}


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    what: str  # "kill", "freeze", or a failpoint's specification
    service: str
    which: int
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds} s" if self.seconds else ""
        return f"{self.at_s:.2f} s: {self.what} {self.service}{lasting}"


def draw(seed: int) -> list[Fault]:
    """The schedule of this seed, in the order of time."""
    rng = Random(seed)
    services = ("gateway",) if rng.random() < GATEWAY_SHARE else STRUCK
    faults = [_fault(rng, rng.choice(services)) for _ in range(rng.randint(*FAULTS))]
    return sorted(faults, key=lambda fault: fault.at_s)


def _fault(rng: Random, service: str) -> Fault:
    at_s, which = rng.uniform(0, SPREAD_S), rng.randrange(16)
    kind = rng.choices(("kill", "freeze", "delay", "corrupt"), (4, 3, 2, 1))[0]
    if kind == "freeze":
        return Fault(at_s, kind, service, which, rng.choice(FREEZE_S))
    points = [name for name in POINTS if OWNERS.get(name.partition(".")[0]) == service]
    passes = rng.randint(1, PASSES_MAX)
    if kind == "delay" and points:
        return Fault(at_s, f"{rng.choice(points)}=delay:{rng.choice(DELAY_S)}@{passes}", service, which)
    if kind == "corrupt" and (garbled := [name for name in points if name in UNREADABLE_FRAMES]):
        return Fault(at_s, f"{garbled[0]}=corrupt@{passes}", service, which)
    return Fault(at_s, "kill", service, which)


async def run_schedule(lane: Lane, seed: int) -> History:
    """Streams, the faults of the seed, and rest."""
    faults = draw(seed)
    history = History(f"nemesis/{seed}", may_fail=any(fault.service == "gateway" for fault in faults))
    lane.new_log_events()
    streams = [asyncio.create_task(lane.perform(each)) for each in requests(Random(seed), history)]
    try:
        await asyncio.gather(*(_strike(lane, fault, history) for fault in faults))
    finally:
        lane.disarm()
    await asyncio.gather(*streams)
    await lane.come_to_rest(history, RESTS_WITHIN_S)
    return history


async def _strike(lane: Lane, fault: Fault, history: History) -> None:
    await asyncio.sleep(fault.at_s)
    pids = lane.pids(fault.service)
    if not pids:
        return  # it is just being started again
    pid = pids[fault.which % len(pids)]
    history.plant(str(fault), time.monotonic())
    match fault.what:
        case "kill":
            lane.signal(pid, signal.SIGKILL)
        case "freeze":
            lane.signal(pid, signal.SIGSTOP)
            await asyncio.sleep(fault.seconds)
            lane.signal(pid, signal.SIGCONT)
        case specification:
            lane.arm(f"{pid} {specification}")
