"""A request's time as leaves: what it was in, moment by moment, each beginning where the one before it ends. Pure.

A leaf lasts until the next thing that is written down, and only where one may follow the other; else there is a hole,
so what is missing is seen to be missing.
"""

from collections.abc import Iterator
from typing import NamedTuple

from libs.contracts import conventions as names
from libs.contracts.trace_records import Decided, Served
from libs.timeline.phases import tokenizer_ends
from libs.timeline.trace import Stay, Step, Store, Trace

GATEWAY = "gateway"
TOKENIZER = "tokenizer"
SCHEDULER = "scheduler"
ORDERING = frozenset({"admitted", "handed_over"})  # reasons after which an order is on its way
LOST = frozenset({"worker_lost", "unknown_workers", "not_listened_to"})
PASSING = frozenset(  # no place to be in
    {"decoding", "blocks_soon", "stopped", "cancelled", "delivered", "gateway_silent", "deadline", "shed", "failed"}
)


class Leaf(NamedTuple):
    """`where` is a service or a worker; `step` a step's number there, −1 where there is none."""

    name: str
    start_ns: int
    end_ns: int
    where: str
    step: int = -1

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class _Chain:
    """Leaves one after the other, none of them beyond `limit_ns`."""

    def __init__(self, start_ns: int, limit_ns: int) -> None:
        self.at_ns, self.limit_ns = start_ns, limit_ns
        self.leaves: list[Leaf] = []

    def to(self, name: str, end_ns: int, where: str, step: int = -1) -> None:
        """In `name` until then; what ends before it began, or never did, is none."""
        end_ns = min(end_ns, self.limit_ns)
        if end_ns > self.at_ns:
            self.leaves.append(Leaf(name, self.at_ns, end_ns, where, step))
            self.at_ns = end_ns

    def skip(self, to_ns: int) -> None:
        """Nothing is known until then."""
        self.at_ns = max(self.at_ns, min(to_ns, self.limit_ns))


def leaves_of(store: Store, trace: Trace) -> tuple[Leaf, ...]:
    """From the first byte that came in to the last that went out."""
    served = trace.served or _unserved(trace)
    steps = trace.steps
    if served.last_row_ns:
        steps = [step for step in steps if step.start_ns < served.last_row_ns]
    chain = _Chain(served.arrived_ns, served.ended_ns)
    _enter(chain, served, trace)
    last_ns = served.last_row_ns or served.ended_ns
    _work(chain, store, trace, steps, last_ns)
    if served.last_row_ns:
        chain.skip(served.last_row_ns)
        chain.to(names.DETOKENISE, served.told_ns or served.ended_ns, GATEWAY)
    chain.to(names.WRITE, served.ended_ns, GATEWAY)
    return tuple(chain.leaves)


def first_leaves_of(store: Store, trace: Trace) -> tuple[Leaf, ...]:
    """The same up to the first text's way out; of a response in one piece up to the first token's arrival."""
    served = trace.served
    if served is None or not served.first_row_ns:
        return ()
    first = next((step for step in trace.steps if step.samples(trace.request_id)), None)
    chain = _Chain(served.arrived_ns, served.first_write_ns or served.first_row_ns)
    _enter(chain, served, trace)
    _work(chain, store, trace, trace.steps, served.first_row_ns, first=first)
    chain.skip(served.first_row_ns)
    chain.to(names.DETOKENISE, served.first_text_ns, GATEWAY)
    chain.to(names.WRITE, served.first_write_ns, GATEWAY)
    return tuple(chain.leaves)


def covered(leaves: tuple[Leaf, ...], start_ns: int, end_ns: int) -> float:
    """The share of an interval that lies in leaves, 0 to 1."""
    inside = sum(max(0, min(leaf.end_ns, end_ns) - max(leaf.start_ns, start_ns)) for leaf in leaves)
    return inside / (end_ns - start_ns) if end_ns > start_ns else 1.0


def decode_share(store: Store, trace: Trace) -> float:
    """The share of the time between first and last token that lies in its steps and in waits with a reason.

    A step lasts from boundary to boundary: the one between two steps that both held it is the second's.
    """
    drawn = [step for step in trace.steps if step.samples(trace.request_id)]
    if len(drawn) < 2:
        return 1.0
    leaves = leaves_of(store, trace)
    reasoned = tuple(leaf for leaf in leaves if is_step(leaf) or is_reasoned(leaf))
    between = tuple(
        leaf
        for before, leaf, after in zip(leaves, leaves[1:], leaves[2:], strict=False)
        if leaf.name == names.BOUNDARY and is_step(before) and after.step == before.step + 1
    )
    return covered(reasoned + between, drawn[0].end_ns, drawn[-1].end_ns)


def is_step(leaf: Leaf) -> bool:
    return leaf.step >= 0 or leaf.name == names.REPORTED


def is_reasoned(leaf: Leaf) -> bool:
    return leaf.name.startswith((names.WAIT, names.HAND_OVER))


def _unserved(trace: Trace) -> Served:
    """As if it was served from the first to the last thing that is known of it."""
    times = [record.pulled_ns for record in trace.tokenized] + [record.at_ns for record in trace.decided]
    times += [step.start_ns for step in trace.steps] + [step.end_ns for step in trace.steps]
    start_ns, end_ns = min(times, default=0), max(times, default=0)
    return Served(trace.request_id, "", "", "", False, start_ns, ended_ns=end_ns, last_row_ns=0)


def _enter(chain: _Chain, served: Served, trace: Trace) -> None:
    """Up to the scheduler."""
    chain.to(names.RECEIVE, served.read_ns, GATEWAY)
    chain.to(names.VALIDATE, served.validated_ns, GATEWAY)
    arrived_ns = trace.arrived[0].at_ns if trace.arrived else 0  # at the first of its schedulers
    tries = [tokenized for tokenized in trace.tokenized if not arrived_ns or tokenized.pulled_ns <= arrived_ns]
    tokenized = tries[-1] if tries else None  # the last try counts
    if tokenized is None:
        chain.to(names.PUBLISH, served.queued_ns, GATEWAY)
        chain.skip(arrived_ns)
        return
    chain.to(names.PUBLISH, min(served.queued_ns or tokenized.pulled_ns, tokenized.pulled_ns), GATEWAY)
    chain.to(names.WAIT_TOKENIZER, tokenized.pulled_ns, TOKENIZER)
    for name, end_ns in tokenizer_ends(tokenized):
        chain.to(name, end_ns, TOKENIZER)
    if arrived_ns:
        chain.to(names.PUBLISH_SEQUENCE, min(tokenized.published_ns, arrived_ns), TOKENIZER)
        chain.to(names.WAIT_SCHEDULER, arrived_ns, SCHEDULER)


def _work(
    chain: _Chain, store: Store, trace: Trace, steps: list[Step], until_ns: int, *, first: Step | None = None
) -> None:
    """From the scheduler's first decision to the arrival of a token frame at the gateway, at `until_ns`.

    `first` is the step that drew the token, where only the way of the first one is asked for.
    """
    limit_ns, chain.limit_ns = chain.limit_ns, min(chain.limit_ns, until_ns)
    last: Decided | Stay | Step | None = None
    for event in _events(trace, steps):
        at_ns = event.at_ns if isinstance(event, Decided | Stay) else event.start_ns
        if at_ns > chain.limit_ns:
            break
        _fill(chain, store, trace, (last, event), at_ns)
        if isinstance(event, Step):
            is_chunk = event.tokens_of(trace.request_id) > 1 or not event.samples(trace.request_id)
            chain.to(names.CHUNK if is_chunk else names.STEP, event.end_ns, event.worker, event.number)
        last = event
        if event is first:
            break  # where it goes on meanwhile is not on this token's way
    if isinstance(last, Step):
        chain.to(names.FRAME, until_ns, GATEWAY)
    elif isinstance(last, Decided) and last.reason not in ORDERING:
        chain.to(names.WAIT + last.reason, until_ns, SCHEDULER)
    chain.limit_ns = limit_ns


def _events(trace: Trace, steps: list[Step]) -> Iterator[Decided | Stay | Step]:
    events: list[tuple[int, int, Decided | Stay | Step]] = []
    events += [(record.at_ns, 0, record) for record in trace.decided if record.reason not in PASSING]
    events += [(stay.at_ns, 1, stay) for stay in trace.joined]
    events += [(step.start_ns, 2, step) for step in steps]
    return (event for _, _, event in sorted(events, key=lambda timed: timed[:2]))


def _fill(
    chain: _Chain,
    store: Store,
    trace: Trace,
    between: tuple[Decided | Stay | Step | None, Decided | Stay | Step],
    to_ns: int,
) -> None:
    """What it was in between one thing written down and the next."""
    last, event = between
    match last, event:
        case None, Decided() if trace.arrived:
            chain.to(names.DECIDE, to_ns, SCHEDULER)
        case None, _:
            chain.skip(to_ns)
        case Decided(reason="handed_over"), _:
            chain.to(names.HAND_OVER_ORDER, to_ns, SCHEDULER)
        case Decided(reason="admitted"), _:
            chain.to(names.ORDER, to_ns, SCHEDULER)
        case Decided(), _:
            chain.to(names.WAIT + last.reason, to_ns, SCHEDULER)
        case ((Stay() | Step()), Step()) if last.worker == event.worker:
            if _is_whole(store, last, event):
                _beside(chain, store, trace, event.worker, to_ns)
            chain.skip(to_ns)
        case ((Stay() | Step()), Decided(reason="handed_over")):
            chain.to(names.HAND_OVER_REPORT, to_ns, last.worker)
        case ((Stay() | Step()), Decided()):
            _taken_away(chain, store, trace, last, event)
        case _:
            chain.to(names.ORDER, to_ns, SCHEDULER)


def _taken_away(chain: _Chain, store: Store, trace: Trace, last: Stay | Step, event: Decided) -> None:
    """From its last step on a worker to the decision that it goes on elsewhere, or later."""
    to_ns = event.at_ns
    _beside(chain, store, trace, last.worker, min(to_ns, _last_wait_end(trace, to_ns)))
    if event.reason not in LOST:
        chain.to(names.REPORT, to_ns, last.worker)
        return
    if isinstance(last, Step):
        chain.to(names.REPORTED, min(to_ns, _reported_until(store, last)), last.worker)
    chain.to(names.WAIT + event.reason, to_ns, last.worker)


def _reported_until(store: Store, last: Step) -> int:
    """When the scheduler took in the last step of a worker that died before it had written it down."""
    later = [r for r in store.reports if r.worker == last.worker and r.last > last.number and r.at_ns > last.start_ns]
    return max((report.until_ns for report in later), default=0)


def _is_whole(store: Store, last: Stay | Step, event: Step) -> bool:
    """Whether every step between two of its own was written down: of one that was not, nobody knows who was in it."""
    if isinstance(last, Stay):
        return True
    between = store.steps_between(event.worker, last.end_ns, event.start_ns - 1)
    return event.number - last.number == len(between) + 1


def _last_wait_end(trace: Trace, before_ns: int) -> int:
    return max((wait.end_ns for wait in trace.waited if wait.start_ns < before_ns), default=0)


def _beside(chain: _Chain, store: Store, trace: Trace, worker: str, to_ns: int) -> None:
    """On a worker, in none of its steps: at a boundary, or waiting while others are in them."""
    for wait in trace.waited:
        if wait.start_ns < to_ns and wait.end_ns > chain.at_ns:
            _others(chain, store, worker, min(to_ns, wait.start_ns))
            chain.to(names.WAIT + wait.reason, min(to_ns, wait.end_ns), worker)
    _others(chain, store, worker, to_ns)


def _others(chain: _Chain, store: Store, worker: str, to_ns: int) -> None:
    if to_ns <= chain.at_ns:
        return
    for step in store.steps_between(worker, chain.at_ns, to_ns):
        chain.to(names.BOUNDARY, min(step.start_ns, to_ns), worker)
        name = names.WAIT_CHUNK_BUDGET if step.request_ids else names.BOUNDARY  # a step that only reports is no time
        chain.to(name, min(step.end_ns, to_ns), worker)
    chain.to(names.BOUNDARY, to_ns, worker)
