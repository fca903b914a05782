"""What became of a request, in sentences: each is made from records alone, by a function that changes nothing. Pure."""

from collections.abc import Callable, Iterator

from libs.contracts import conventions as names
from libs.contracts.trace_records import Decided
from libs.timeline.episodes import Episode, episodes_of
from libs.timeline.leaves import Leaf, leaves_of
from libs.timeline.trace import Step, Store, Trace

SHOWN_NS = 50_000  # shorter waits are not told
SHOWN_CHUNKS = 8
SHORTAGES = ("no_blocks", "max_running", "no_worker", "unknown_workers", "suspected")

ENTRY = (names.RECEIVE, names.VALIDATE, names.PUBLISH)
TOKENIZING = (
    names.GRAMMAR,
    names.PULL,
    names.TEMPLATE,
    names.ENCODE,
    names.RETURN,
    names.HASH,
    names.LOOK_UP,
    names.PUBLISH_SEQUENCE,
)


def explain(store: Store, trace: Trace) -> list[str]:
    """One sentence a line, in the order of time."""
    leaves = leaves_of(store, trace)
    sentences = [*_opening(trace), *_entry(trace, leaves)]
    for episode in episodes_of(leaves):
        sentences += _told(store, trace, episode)
    return [*sentences, *_ending(trace, leaves)]


def _opening(trace: Trace) -> Iterator[str]:
    served = trace.served
    if served is None:
        yield f"{trace.request_id} is still under way, or its gateway was lost."
        return
    first = f", the first after {ms(served.first_row_ns - served.arrived_ns)}" if served.first_row_ns else ""
    yield (
        f"{trace.request_id}: {count(served.prompt_tokens, 'prompt token')}, {served.cached_tokens} of them cached; "
        f"{count(served.generated_tokens, 'token')} in {ms(served.ended_ns - served.arrived_ns)}{first}."
    )


def _entry(trace: Trace, leaves: tuple[Leaf, ...]) -> Iterator[str]:
    entry_ns = _sum(leaves, ENTRY)
    if entry_ns:
        yield f"Read, validated and queued in {ms(entry_ns)}."
    waited_ns = _sum(leaves, (names.WAIT_TOKENIZER,))
    if waited_ns >= SHOWN_NS:
        yield f"Waited {ms(waited_ns)} for a tokenizer."
    tokenized_ns = _sum(leaves, TOKENIZING)
    if tokenized_ns and trace.tokenized:
        tokenized = trace.tokenized[-1]
        parts = [
            f"{what} {ms(_sum(leaves, (name,)))}"
            for name, what in (
                (names.GRAMMAR, "the form of its answer"),
                (names.TEMPLATE, "template"),
                (names.ENCODE, "encoding"),
                (names.LOOK_UP, "prefix look-up"),
            )
            if _sum(leaves, (name,))
        ]
        known = f"; the index knew {tokenized.known_tokens} of its tokens" if tokenized.known_tokens else ""
        yield f"Tokenised in {ms(tokenized_ns)} ({', '.join(parts)}){known}."
    if len(trace.tokenized) > 1:
        yield f"It was tokenised {len(trace.tokenized)} times: what is not acknowledged is delivered again."


def _told(store: Store, trace: Trace, episode: Episode) -> Iterator[str]:
    if episode.name == names.CHUNK:
        yield from _chunks(trace, episode)
    elif episode.name == names.STEP:
        yield _steps(trace, episode)
    elif episode.name in (names.HAND_OVER_REPORT, names.HAND_OVER_ORDER):
        if episode.name == names.HAND_OVER_ORDER:
            yield _hand_over(trace, episode)
    elif episode.name == names.ORDER:
        yield from _admitted(trace, episode)
    elif episode.name == names.REPORTED:
        yield f"In steps of {episode.where} for {ms(episode.duration_ns)} more: it reported them, and died."
    elif episode.name.startswith(names.WAIT) and episode.duration_ns >= SHOWN_NS:
        reason = episode.name.removeprefix(names.WAIT)
        if reason in WAITS:
            yield WAITS[reason](store, trace, episode)
        elif reason not in ("tokenizer", "chunk_budget"):
            yield f"Waited {ms(episode.duration_ns)}: {reason.replace('_', ' ')}."


def _behind_older(store: Store, trace: Trace, episode: Episode) -> str:
    older = _decision(trace, episode).older
    waited = f"Queued {ms(episode.duration_ns)}"
    if not older:
        return f"{waited} until the scheduler looked at it."
    cause = next((d for d in reversed(_before(store, episode.end_ns)) if d.reason in SHORTAGES), None)
    because = f" {_because(cause)}" if cause is not None else ""
    return f"{waited} behind {count(older, 'older request')}{because}."


def _because(cause: Decided) -> str:
    match cause.reason:
        case "no_blocks":
            return f"because {cause.held_blocks} of {cause.total_blocks} blocks were held"
        case "max_running":
            return f"because {count(cause.running, 'request')} ran, as many as may"
        case _:
            return f"because of {cause.reason.replace('_', ' ')}"


def _no_blocks(store: Store, trace: Trace, episode: Episode) -> str:
    decided = _decision(trace, episode)
    needs = f" and it needed up to {decided.needs_blocks}" if decided.needs_blocks else ""
    held = f"{decided.held_blocks} of {decided.total_blocks} blocks were held{needs}"
    return f"Waited {ms(episode.duration_ns)} for blocks: {held}."


def _max_running(store: Store, trace: Trace, episode: Episode) -> str:
    running = _decision(trace, episode).running
    return f"Waited {ms(episode.duration_ns)} because {count(running, 'request')} ran, as many as may."


def _worker_lost(store: Store, trace: Trace, episode: Episode) -> str:
    decided_ns = _decision(trace, episode).at_ns
    begun = [step.worker for step in trace.steps if step.start_ns <= episode.start_ns]
    if not begun or any(arrived.at_ns == decided_ns for arrived in trace.arrived):
        return f"Waited {ms(episode.duration_ns)} while its gateway was asked what an earlier scheduler had of it."
    return f"{begun[-1]} was lost while it computed it: {ms(episode.duration_ns)} until it could go on."


def _preempted(store: Store, trace: Trace, episode: Episode) -> str:
    decided = _decision(trace, episode)
    held = f"{decided.held_blocks} of {decided.total_blocks} blocks are held without it"
    waited = f"Gave its blocks to an older request and waited {ms(episode.duration_ns)} ({held})"
    if decided.reason == "preempted_swap":
        return f"{waited}; what was in them rested in the host tier{_weighed(decided)}."
    return f"{waited}; its tokens are kept, and computed again{_weighed(decided)}."


def _weighed(decided: Decided) -> str:
    """Why in this way."""
    if decided.recompute_ns < 0:
        return ""
    if decided.swap_ns < 0:
        return ": no host tier had room for them"
    return f": a swap was put at {ms(decided.swap_ns)}, computing again at {ms(decided.recompute_ns)}"


def _plainly(text: str) -> Callable[[Store, Trace, Episode], str]:
    return lambda store, trace, episode: f"Waited {ms(episode.duration_ns)} {text}."


WAITS: dict[str, Callable[[Store, Trace, Episode], str]] = {
    "behind_older": _behind_older,
    "behind_priority": _plainly("behind requests of an earlier priority"),
    "behind_deadline": _plainly("behind a request with an earlier deadline"),
    "behind_share": _plainly("because its tenant had been served more than another one that waited"),
    "tenant_full": _plainly("because its tenant had all but what is kept for others"),
    "no_blocks": _no_blocks,
    "max_running": _max_running,
    "worker_lost": _worker_lost,
    "preempted_recompute": _preempted,
    "preempted_swap": _preempted,
    "no_worker": _plainly("for a worker of the role that it needed"),
    "pending_prefix": _plainly("for another request that was computing the same prefix"),
    "worker_leaves": _plainly("because its worker was told to stop, to go on elsewhere"),
    "not_listened_to": _plainly("because its gateway listened to another attempt"),
    "unknown_workers": _plainly("until the workers of an earlier scheduler were known or gone"),
    "suspected": _plainly("for a worker of its own: two had died while they computed it"),
    "out_of_grant": _plainly("in its worker for more blocks"),
    "fill_behind": _plainly("in its worker until the blocks before it were filled"),
    "grammar_behind": _plainly("in its worker until its grammar was compiled"),
    "scheduler": _plainly("for the scheduler to take it from its queue"),
}


def _admitted(trace: Trace, episode: Episode) -> Iterator[str]:
    for order in reversed(trace.orders):
        begins = next((begin for name, begin, _ in order.added if name == trace.request_id), None)
        if begins is not None and order.at_ns <= episode.end_ns:
            kept = f", from token {begins} on" if begins else ""
            blocks = f"{order.held_after} of {order.total_blocks} blocks held"
            yield f"Given to {order.worker}{kept} ({blocks}); it took {ms(episode.duration_ns)} to begin."
            return


def _chunks(trace: Trace, episode: Episode) -> Iterator[str]:
    steps = _steps_of(trace, episode)
    sizes = [str(step.tokens_of(trace.request_id)) for step in steps]
    shown = sizes if len(sizes) <= SHOWN_CHUNKS else [*sizes[: SHOWN_CHUNKS - 2], "…", sizes[-1]]
    chunks = f"one chunk of {sizes[0]} tokens" if len(sizes) == 1 else f"{len(sizes)} chunks of {_joined(shown)} tokens"
    spent = f"{ms(sum(leaf.duration_ns for leaf in episode.steps))}{_beside(steps)}"
    yield f"Prefilled in {chunks} on {episode.where} ({spent})."
    waited_ns = episode.total_ns(names.WAIT_CHUNK_BUDGET)
    if waited_ns >= SHOWN_NS:
        yield f"Of its time there it waited {ms(waited_ns)} because the chunk budget of a step went to others."


def _steps(trace: Trace, episode: Episode) -> str:
    steps = _steps_of(trace, episode)
    each = ms(sum(leaf.duration_ns for leaf in episode.steps) // max(1, len(steps)))
    spent = f"{ms(episode.duration_ns)}, {each} a step"
    return f"Decoded in {count(len(steps), 'step')} on {episode.where}{_beside(steps)} ({spent})."


def _hand_over(trace: Trace, episode: Episode) -> str:
    workers = [stay.worker for stay in trace.joined if stay.at_ns <= episode.end_ns]
    who = f" from {workers[-2]} to {workers[-1]}" if len(workers) > 1 else ""
    return f"Handed over{who} in the same blocks; {ms(episode.duration_ns)} until it was taken."


def _ending(trace: Trace, leaves: tuple[Leaf, ...]) -> Iterator[str]:
    served = trace.served
    if served is None:
        return
    if served.last_row_ns:
        repaired = f", after {count(served.repairs, 'repair')} of lost frames" if served.repairs else ""
        out_ns = served.ended_ns - served.last_row_ns
        yield f"The last token was text and with the client {ms(out_ns)} after it had come{repaired}."
    yield from _out_of_time(trace)
    if served.error:
        yield f"It ended as {served.outcome}, with {served.error}."
    elif served.outcome:
        yield f"It ended by {served.outcome}."


def _out_of_time(trace: Trace) -> Iterator[str]:
    for before, decided in zip([None, *trace.decided], trace.decided, strict=False):
        if decided.reason == "deadline":
            where = f" ({before.reason.replace('_', ' ')})" if before is not None else ""
            yield f"Its deadline passed where it was{where}."
        elif decided.reason == "shed":
            left, needs = ms(decided.left_ms * 1_000_000), ms(decided.needs_ms * 1_000_000)
            yield f"Given up {left} before its deadline: it needed {needs} at least, and others were before it."


def _decision(trace: Trace, episode: Episode) -> Decided:
    """The one that the episode is the consequence of."""
    reason = episode.name.removeprefix(names.WAIT)
    of_reason = [decided for decided in trace.decided if decided.reason == reason]
    before = [decided for decided in of_reason if decided.at_ns <= episode.start_ns]
    return before[-1] if before else of_reason[0]


def _before(store: Store, at_ns: int) -> list[Decided]:
    return [decided for decided in store.decided if decided.at_ns <= at_ns]


def _steps_of(trace: Trace, episode: Episode) -> list[Step]:
    numbers = {leaf.step for leaf in episode.steps}
    during = (step for step in trace.steps if episode.start_ns <= step.start_ns < episode.end_ns)
    return [step for step in during if step.worker == episode.where and step.number in numbers]


def _beside(steps: list[Step]) -> str:
    others = [len(step.request_ids) - 1 for step in steps]
    if not others or not max(others):
        return " alone"
    least, most = min(others), max(others)
    return f" beside {most} others" if least == most and most > 1 else f" beside up to {count(most, 'other')}"


def _sum(leaves: tuple[Leaf, ...], wanted: tuple[str, ...]) -> int:
    return sum(leaf.duration_ns for leaf in leaves if leaf.name in wanted)


def _joined(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def ms(time_ns: int) -> str:
    """As short as it is told apart: 1,234 ms, 41 ms, 1.2 ms, 0.05 ms."""
    value = time_ns / 1e6
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"
