"""Every failpoint × {kill, pause}: what to arm, what brings a process to the point, and whether clients may notice."""

import asyncio
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from libs.contracts.messages import SamplingParams
from libs.runtime.failpoints import POINTS
from tests.chaos.history import History, Operation
from tests.chaos.lane import FAILPOINT, OPTIONS, Lane, is_gone

PAUSE_S: Final = 1.4  # beyond every liveness limit, which are a second
ACTIONS: Final = ("kill", f"pause:{PAUSE_S}")
ROLES: Final = ("hybrid", "disaggregated")
STARVED: Final = "starved"
SWAPS: Final = {"preemption": "swap", "prefix_caching": "false"}  # else what is swapped out may still be in the pool
LANES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {  # name → role, options
    **{role: (role, OPTIONS) for role in ROLES},
    STARVED: ("hybrid", {**OPTIONS, "prefill": 0, "decode": 1, "kv_blocks": 12, "host_blocks": 64, "scheduler": SWAPS}),
}
STREAMS: Final = 4
FIRES_WITHIN_S: Final = 8.0  # of the end of the last stream
RESTS_WITHIN_S: Final = 25.0
STEADY: Final = {  # points that a worker passes at each step: not at the first one
    "worker.step.before": 6,
    "worker.step.published": 6,
    "worker.step.absorbed": 6,
    "worker.frame.before": 6,
    "worker.frame.after": 6,
    "worker.result.send": 2,
    "worker.began": 2,
    "worker.version.taken": 2,
    "gateway.frame.in": 6,
    "gateway.log.append": 9,
    "scheduler.decided": 5,
    "scheduler.carried": 5,
}
LOST_WORKER: Final = (
    "gateway.epoch.answer",
    "scheduler.epoch.ask",
    "scheduler.epoch.answered",
    "scheduler.kill.before",
    "scheduler.kill.gone",
    "host.kill.received",
    "host.kill.gone",
)
NEW_TERM: Final = (
    "worker.attach",
    "worker.hello",
    "scheduler.term.claim",
    "scheduler.term.claimed",
    "scheduler.cell.open",
    "scheduler.hello",
    "scheduler.snapshot.send",
)
SWAPPED: Final = ("worker.swap.out", "worker.swap.in")  # what happens where blocks are short
HANDED_OVER: Final = ("scheduler.hand_over",)  # what no hybrid stack does
STARTING: Final = tuple(name for name in NEW_TERM if name.startswith("scheduler"))  # of a process not there yet


@dataclass(frozen=True, slots=True)
class Case:
    point: str
    action: str
    lane: str

    @property
    def name(self) -> str:
        return f"{self.point}={self.action.partition(':')[0]}"

    @property
    def service(self) -> str:
        """Whose process is struck; a worker's is the decode worker's unless prompts are computed elsewhere."""
        return {"host": "supervisor", "worker": "decode_worker"}.get(owner := self.point.partition(".")[0], owner)

    @property
    def ends_the_stack(self) -> bool:
        return self.service == "supervisor" and self.action == "kill"

    @property
    def may_fail(self) -> bool:
        return self.service == "gateway" or self.ends_the_stack


def cases() -> list[Case]:
    """All of them; neighbours run in different roles, and a point's two actions do, too, unless it needs a lane."""
    return [
        Case(point, action, _lane_of(point, number + turn))
        for number, point in enumerate(POINTS)
        for turn, action in enumerate(ACTIONS)
    ]


def _lane_of(point: str, turn: int) -> str:
    if point in SWAPPED:
        return STARVED
    return "disaggregated" if point in HANDED_OVER else ROLES[turn % 2]


def requests(rng: random.Random, history: History, *, is_starved: bool = False) -> list[Operation]:
    """A few clients: greedy, sampled by a seed, one with a stop string, prompts with and without a common beginning.

    Where blocks are to run short, there are more of them, with longer answers.
    """
    shared = [rng.randrange(10, 1000) for _ in range(40)]
    operations = []
    longer_tokens, streams = (50, 2 * STREAMS) if is_starved else (0, STREAMS)
    for number in range(streams):
        own = [rng.randrange(10, 1000) for _ in range(rng.randint(3, 30))]
        params = SamplingParams(
            temperature=0.8 * (number % 2),
            seed=rng.randrange(1 << 30),
            max_tokens=rng.randint(16, 40) + longer_tokens,
            ignore_eos=number != 0,
        )
        prompt = own if number % 2 else shared + own
        stop, choices = ("7",) if number == 3 else (), rng.choice((1, 2, 3))
        operations.append(history.invoke(prompt, params, time.monotonic(), stop, choices))
    return operations


async def run_case(lane: Lane, case: Case) -> History:
    """Streams, one fault in the middle of them, and rest."""
    history = History(f"matrix/{case.name}", may_fail=case.may_fail)
    rng = random.Random(case.name)
    children = (lane.state().supervisor, *lane.state().children)
    lane.new_log_events()
    lane.arm(*_lines(lane, case))
    try:
        streams = [
            asyncio.create_task(lane.perform(each)) for each in requests(rng, history, is_starved=case.lane == STARVED)
        ]
        await _provoke(lane, case, streams)
        history.plant(case.name, await _fired(lane, case, streams))
    finally:
        lane.disarm()
    await asyncio.gather(*streams, return_exceptions=True)
    if case.ends_the_stack:
        await _all_gone(children)
    else:
        await lane.come_to_rest(history, RESTS_WITHIN_S)
    return history


def _lines(lane: Lane, case: Case) -> list[str]:
    specification = f"{case.point}={case.action}@{STEADY.get(case.point, 1)}"
    if case.point in STARTING:
        return [f"scheduler-0 {specification}"]
    struck = lane.pids(case.service)
    if case.service == "decode_worker":  # the other one is left to take over
        struck = struck[:1]
    lines = [f"{pid} {specification}" for pid in struck]
    if case.point in LOST_WORKER:  # it freezes in the midst of work, however the requests were placed in time
        lines.append(f"{lane.pids('decode_worker')[-1]} worker.step.before=pause:30@1")
    if case.point == "gateway.resend":
        lines += [f"{pid} worker.frame.before=corrupt@4" for pid in lane.pids("decode_worker")]
    return lines


async def _provoke(lane: Lane, case: Case, streams: "list[asyncio.Task[None]]") -> None:
    """Do what makes the process pass the point, unless any request does."""
    await asyncio.sleep(0.15)
    if case.point in NEW_TERM:
        lane.signal(lane.pids("scheduler")[0], signal.SIGKILL)
    elif case.point == "supervisor.restart":
        lane.signal(lane.pids("tokenizer")[0], signal.SIGKILL)
    elif case.point == "gateway.cancel":
        streams[0].cancel()


async def _fired(lane: Lane, case: Case, streams: "list[asyncio.Task[None]]") -> float:
    """When the point acted. Fails when all streams have ended and nothing passes it: such a case would test nothing."""
    under_way_s = time.monotonic()
    while time.monotonic() < under_way_s + FIRES_WITHIN_S:
        if not all(stream.done() for stream in streams):
            under_way_s = time.monotonic()
        if any(event.get("event") == FAILPOINT and event["point"] == case.point for event in lane.new_log_events()):
            return time.monotonic()
        if case.service == "supervisor" and (not lane.alive or lane.has_stopped()):
            return time.monotonic()
        await asyncio.sleep(0.02)
    raise AssertionError(f"nothing passed {case.point}")


async def _all_gone(children: "tuple[object, ...]") -> None:
    deadline_s = time.monotonic() + 2
    while not all(is_gone(child) for child in children):  # type: ignore[arg-type]
        assert time.monotonic() < deadline_s, "children outlived their supervisor"
        await asyncio.sleep(0.02)
