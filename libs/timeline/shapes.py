"""A trace, or a step, as plain values for JSON: times in nanoseconds since 1970. Pure."""

from typing import Any

import msgspec

from libs.contracts.trace_records import Report
from libs.timeline.leaves import covered, decode_share, first_leaves_of, leaves_of
from libs.timeline.trace import Step, Store, Trace


def trace_shape(store: Store, trace: Trace) -> dict[str, Any]:
    """A request: its leaves, the steps that it was in, the decisions about it, and how much of its time that covers."""
    offset_ns = store.unix_offset_ns
    leaves = leaves_of(store, trace)
    served = trace.served
    return {
        "request_id": trace.request_id,
        "trace_id": served.trace_id if served else "",
        "request": msgspec.to_builtins(_named(served)) if served else None,
        "coverage": coverage(store, trace),
        "leaves": [
            {
                "name": leaf.name,
                "where": leaf.where,
                "start_ns": leaf.start_ns + offset_ns,
                "end_ns": leaf.end_ns + offset_ns,
                **({"step": leaf.step} if leaf.step >= 0 else {}),
            }
            for leaf in leaves
        ],
        "steps": [step_shape(store, step) for step in trace.steps],
        "decisions": [{**_named(decided), "at_ns": decided.at_ns + offset_ns} for decided in trace.decided],
        "reports": [{**_named(report), "at_ns": report.at_ns + offset_ns} for report in _reports_of(store, trace)],
        "orders": [{**_named(order), "at_ns": order.at_ns + offset_ns} for order in trace.orders],
    }


def step_shape(store: Store, step: Step) -> dict[str, Any]:
    """A worker's step: a trace of its own, with links to the requests in its batch."""
    return {
        "worker": step.worker,
        "step": step.number,
        "start_ns": step.start_ns + store.unix_offset_ns,
        "end_ns": step.end_ns + store.unix_offset_ns,
        "batch_tokens": step.batch_tokens,
        "requests": [
            {"request_id": request_id, "tokens": tokens}
            for request_id, tokens in zip(step.request_ids, step.tokens, strict=True)
        ],
    }


def coverage(store: Store, trace: Trace) -> dict[str, float]:
    """Shares, 0 to 1: of the time to the first token, of all time, and of decoding that steps and waits explain."""
    served = trace.served
    if served is None:
        return {}
    shares = {"end_to_end": covered(leaves_of(store, trace), served.arrived_ns, served.ended_ns)}
    if served.first_row_ns:
        first_ns = served.first_write_ns or served.first_row_ns
        shares["time_to_first_token"] = covered(first_leaves_of(store, trace), served.arrived_ns, first_ns)
        shares["decode"] = decode_share(store, trace)
    return shares


def _reports_of(store: Store, trace: Trace) -> list[Report]:
    """What the scheduler noted of the steps that the request was in, about when they were."""
    if not trace.steps:
        return []
    numbers: dict[str, set[int]] = {}
    for step in trace.steps:
        numbers.setdefault(step.worker, set()).add(step.number)
    first_ns = trace.steps[0].start_ns  # a worker's next life counts its steps anew
    return [
        report
        for report in store.reports
        if report.at_ns >= first_ns
        and not numbers.get(report.worker, set()).isdisjoint(range(report.first, report.last + 1))
    ]


def _named(record: msgspec.Struct) -> dict[str, Any]:
    """A record's fields by name; on disk they are a list."""
    return {name: getattr(record, name) for name in record.__struct_fields__}
