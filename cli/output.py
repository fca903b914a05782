"""What the command prints: the banner of a running stack, its status as a table or JSON, and progress."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from deploy.local.run_dir import State
    from deploy.local.status import StackStatus

QUESTION = "What is the capital of France?"
KEY_VARIABLE = "HR_GATEWAY_API_KEY"
AUTHORIZATION = f' -H "Authorization: Bearer ${KEY_VARIABLE}"'


class Report(Protocol):
    """Told how far a named piece of work is."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


@contextmanager
def progress() -> Iterator[Report]:
    """Bars on a terminal; elsewhere one plain line when a piece of work starts and one when it is done."""
    if not sys.stderr.isatty():
        yield _plain_progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = {task.description: task.id for task in bars.tasks}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report


def _plain_progress() -> Report:
    told: dict[str, int] = {}

    def report(what: str, done: int, total: int) -> None:
        if what not in told or done == total != told[what]:
            told[what] = done
            sys.stderr.write(f"{what}: {done} of {total}\n")
            sys.stderr.flush()

    return report


def banner(state: "State") -> str:
    """How to talk to the stack that has just come up. What it prints can be pasted as it is."""
    url, model = state.base_url, state.model
    models = ", ".join((model, *state.other_models))
    header = f"-H 'Content-Type: application/json'{AUTHORIZATION if state.needs_key else ''}"
    key = f'os.environ["{KEY_VARIABLE}"]' if state.needs_key else '"none"'
    grpc = f"gRPC: {state.grpc_address} (headrace.v1.Inference)\n" if state.grpc_address else ""
    return f"""\
Headrace serves {models} at {url}
{grpc}KV cache: {capacity(state.kv_blocks, state.block_tokens, state.pool_bytes)}

  curl {url}/chat/completions {header} \\
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "{QUESTION}"}}], "temperature": 0}}'

{"  import os" + chr(10) if state.needs_key else ""}  from openai import OpenAI

  client = OpenAI(base_url="{url}", api_key={key})
  answer = client.chat.completions.create(
      model="{model}",
      messages=[{{"role": "user", "content": "{QUESTION}"}}],
      temperature=0,
  )
  print(answer.choices[0].message.content)
"""


def capacity(blocks: int, block_tokens: int, pool_bytes: int) -> str:
    size = f"{pool_bytes / 2**30:.1f} GiB" if pool_bytes >= 2**30 else f"{pool_bytes / 2**20:.0f} MiB"
    return f"{blocks:,} blocks x {block_tokens} tokens = {blocks * block_tokens:,} tokens, {size}"


def status_table(status: "StackStatus") -> str:
    """The status for people."""
    rows = [("service", "pid", "port", "state")]
    for service in status.services:
        state = "ready" if service.ready else f"not ready: {service.detail}"
        rows.append((service.name, str(service.pid), str(service.port or "-"), state))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    blocks, problems = status.blocks, status.problems
    models = ", ".join((status.model, *status.other_models))
    audit = [] if problems is None else ["", *(problems or ["audit: all is as it must be"])]
    return "\n".join(
        [
            f"{models} at {status.base_url} ({status.phase})",
            "",
            *lines,
            "",
            f"blocks: {blocks.total} total, {blocks.free} free, {blocks.cached} cached, "
            f"{blocks.held} held, {blocks.freeing} freeing",
            f"requests: {status.running} running, {status.waiting} waiting",
            *audit,
        ]
    )
