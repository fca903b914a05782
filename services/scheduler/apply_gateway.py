"""Events about requests and their gateways."""

import heapq

from libs.contracts.messages import Alive
from services.scheduler import lifecycle, recovery, shedding
from services.scheduler.events import Answered, Arrived, Logged
from services.scheduler.reasons import Reason
from services.scheduler.state import State


def arrived(state: State, event: Arrived, now_s: float) -> None:
    group = lifecycle.arrive(state, event.sequence, event.traceparent, now_s)
    if group is None:
        return
    if group.sequence.is_timed:
        heapq.heappush(state.deadlines, (shedding.latest_start_s(state, group.leader), group.request_id))
    if group.is_open and event.is_older:
        recovery.inquire(state, group, now_s)


def alive(state: State, event: Alive, now_s: float) -> None:
    gateway = state.gateways.get(event.gateway)
    if gateway is not None:
        gateway.heard_s = now_s


def answered(state: State, event: Answered, now_s: float) -> None:
    """After a Failed nothing is owed; after a Finished only if the gateway does not hold the request any more."""
    group = state.requests.get(event.request_id)
    if group is not None and (group.is_failed or not event.live):
        lifecycle.forget(state, group, Reason.DELIVERED, now_s)


def logged(state: State, event: Logged, now_s: float) -> None:
    recovery.logged(state, event.log, now_s)
