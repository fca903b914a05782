"""A trace in the Chrome trace event format, which Perfetto opens: one request, and the workers' steps. Pure.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from typing import Any

from libs.timeline.leaves import leaves_of
from libs.timeline.trace import Store, Trace

REQUEST, WORKERS = 1, 2  # "processes" of the format


def perfetto(store: Store, trace: Trace) -> dict[str, Any]:
    """Times are microseconds since 1970. Steps of others are there as well: what ran while this one waited."""
    leaves = leaves_of(store, trace)
    offset_ns = store.unix_offset_ns
    events = [_title(REQUEST, "request " + trace.request_id), _title(WORKERS, "workers")]
    tracks = {where: number for number, where in enumerate(dict.fromkeys(leaf.where for leaf in leaves), 1)}
    events += [_track(REQUEST, number, where) for where, number in tracks.items()]
    for leaf in leaves:
        times = (leaf.start_ns + offset_ns, leaf.end_ns + offset_ns)
        arguments = {"step": f"{leaf.where}#{leaf.step}"} if leaf.step >= 0 else {}
        events.append(_slice(leaf.name, (REQUEST, tracks[leaf.where]), times, arguments))
    if leaves:
        for number, worker in enumerate(sorted(store.steps), 1):
            events.append(_track(WORKERS, number, worker))
            for step in store.steps_between(worker, leaves[0].start_ns, leaves[-1].end_ns):
                links: dict[str, Any] = {"requests": list(step.request_ids), "tokens": list(step.tokens)}
                times = (step.start_ns + offset_ns, step.end_ns + offset_ns)
                events.append(_slice(f"step {step.number}", (WORKERS, number), times, links))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _slice(name: str, track: tuple[int, int], times_ns: tuple[int, int], arguments: dict[str, Any]) -> dict[str, Any]:
    start_ns, end_ns = times_ns
    process, thread = track
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": start_ns / 1000,
        "dur": (end_ns - start_ns) / 1000,
        "args": arguments,
    }


def _title(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}


def _track(process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}
