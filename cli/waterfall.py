"""A trace as a waterfall of text: one line for each episode, its bar where it lies in the request's time."""

from io import StringIO
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from libs.contracts import conventions as names
from libs.timeline.episodes import Episode, episodes_of
from libs.timeline.leaves import leaves_of
from libs.timeline.shapes import coverage
from libs.timeline.trace import Step, Store, Trace

BAR_CELLS: Final = 48
NARROWEST: Final = 150
COLOURS: Final = (("wait.", "red"), ("prefill.", "blue"), ("decode.", "green"), ("gateway.", "cyan"))


def waterfall(store: Store, trace: Trace) -> str:
    """With colours on a terminal; what is not covered by a leaf is a line called hole."""
    leaves = leaves_of(store, trace)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, justify in (("start ms", "right"), ("ms", "right"), ("", "left"), ("phase", "left"), ("where", "left")):
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    if leaves:
        start_ns, end_ns = leaves[0].start_ns, leaves[-1].end_ns
        at_ns = start_ns
        for episode in episodes_of(leaves):
            if episode.start_ns > at_ns:
                table.add_row(*_ms(at_ns - start_ns, episode.start_ns - at_ns), "", "hole", "")
            table.add_row(*_row(episode, start_ns, end_ns))
            at_ns = episode.end_ns
    return _rendered(_title(trace), table, _coverage(store, trace))


def step_text(store: Store, step: Step) -> str:
    lines = [
        f"step {step.number} of {step.worker}: {(step.end_ns - step.start_ns) / 1e6:.2f} ms, "
        f"{step.batch_tokens} tokens in {len(step.request_ids)} rows"
    ]
    lines += [f"  {tokens:5}  {name}" for name, tokens in zip(step.request_ids, step.tokens, strict=True)]
    return "\n".join(lines) + "\n"


def _row(episode: Episode, start_ns: int, end_ns: int) -> tuple[str | Text, ...]:
    colour = next((colour for prefix, colour in COLOURS if episode.name.startswith(prefix)), "yellow")
    scale = BAR_CELLS / max(1, end_ns - start_ns)
    before = min(BAR_CELLS - 1, int((episode.start_ns - start_ns) * scale))
    length = max(1, min(BAR_CELLS - before, round(episode.duration_ns * scale)))
    bar = Text(" " * before) + Text("━" * length, style=colour)
    steps = episode.steps
    phase, where = episode.name, episode.where
    if steps:
        phase += f" x {len(steps)}"
        where += f"#{steps[0].step}" + (f"…{steps[-1].step}" if len(steps) > 1 else "")
    if waited_ns := episode.total_ns(names.WAIT_CHUNK_BUDGET):
        phase += f", {waited_ns / 1e6:.1f} ms waited"
    return (*_ms(episode.start_ns - start_ns, episode.duration_ns), bar, phase, where)


def _ms(*times_ns: int) -> tuple[str, ...]:
    return tuple(f"{time_ns / 1e6:,.2f}" for time_ns in times_ns)


def _title(trace: Trace) -> str:
    served = trace.served
    if served is None:
        return f"{trace.request_id}, still under way or its gateway lost"
    what = f"{served.prompt_tokens} prompt tokens ({served.cached_tokens} cached), {served.generated_tokens} generated"
    return f"{trace.request_id}  {served.model}  {what}  {served.outcome} {served.error}".rstrip()


def _coverage(store: Store, trace: Trace) -> str:
    shares = coverage(store, trace)
    told = ", ".join(f"{share:.1%} of {name.replace('_', ' ')}" for name, share in shares.items())
    return f"explained: {told}" if told else ""


def _rendered(title: str, table: Table, end: str) -> str:
    out = StringIO()
    terminal = Console()
    console = Console(
        file=out, width=max(NARROWEST, terminal.width), force_terminal=terminal.is_terminal, highlight=False
    )
    console.print(title, style="bold", markup=False)
    console.print(table)
    console.print(end, markup=False)
    return out.getvalue()
