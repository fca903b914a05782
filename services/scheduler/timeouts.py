"""What ends because time has passed: deadlines, gateways and workers that fell silent, questions unanswered."""

import heapq
from collections.abc import Iterator

from libs.contracts import flow
from libs.contracts.errors import DeadlineExceeded
from services.scheduler import lifecycle, liveness, opening, recovery, roll_call, shedding
from services.scheduler.reasons import Reason
from services.scheduler.state import State


def expire(state: State, now_s: float) -> None:
    _end_late_requests(state, now_s)
    for gateway in [gateway for gateway in state.gateways.values() if _silent_s(gateway.heard_s) <= now_s]:
        state.counts["gateway_silent"] += 1
        for request_id in sorted(gateway.request_ids):
            lifecycle.forget(state, state.requests[request_id], Reason.GATEWAY_SILENT, now_s)
    for worker in state.workers.values():
        if liveness.is_dead(state, worker, now_s):
            recovery.lose_worker(state, worker, now_s)
    recovery.resume_unanswered(state, now_s)
    roll_call.expire(state, now_s)


def next_expiry_s(state: State) -> float | None:
    """When `expire` has to be called next at the latest; None while nothing can expire."""
    while state.deadlines and not _is_awaited(state, state.deadlines[0][1]):
        heapq.heappop(state.deadlines)
    return min(_expiries(state), default=None)


def _expiries(state: State) -> Iterator[float]:
    if state.deadlines:
        yield state.deadlines[0][0]
    for gateway in state.gateways.values():
        yield _silent_s(gateway.heard_s)
    for worker in state.workers.values():
        if (suspicious_s := liveness.suspicious_s(worker)) is not None:
            yield suspicious_s
    for choice in state.asking.values():
        if choice.answer_by_s is not None:
            yield choice.answer_by_s
    if (open_s := opening.due_s(state)) is not None:
        yield open_s
    for roll in state.rolls.values():
        if (due_s := roll_call.due_s(state, roll)) is not None:
            yield due_s


def _silent_s(heard_s: float) -> float:
    return heard_s + flow.GATEWAY_SILENCE_S


def _is_awaited(state: State, request_id: str) -> bool:
    return request_id in state.cancelled or request_id in state.requests


def _end_late_requests(state: State, now_s: float) -> None:
    while state.deadlines and state.deadlines[0][0] <= now_s:
        _, request_id = heapq.heappop(state.deadlines)
        if state.cancelled.get(request_id, now_s + 1) <= now_s:
            del state.cancelled[request_id]
        group = state.requests.get(request_id)
        if group is None or group.is_failed:
            continue
        if group.deadline_s <= now_s:
            error = DeadlineExceeded("the request's deadline has passed")
            lifecycle.fail(state, group.leader, error, now_s, reason=Reason.DEADLINE)
        else:
            shedding.shed(state, group.leader, now_s)
