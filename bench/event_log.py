"""What the scheduler's event log costs: CPU time of a reported step of plain decoding, and bytes it leaves on the disk.

`python -m bench.event_log --rows 32`. A turn takes one StepResult in and decides nothing, but for an Ack every 16.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from libs.contracts.messages import Ack, RowResult, StepResult
from services.scheduler.event_log import EventLog, log_path, open_log
from services.scheduler.events import Command, Send
from services.scheduler.state import Policy

STEPS, STEPS_AN_ACK = 5_000, 16
PROMPT_TOKENS = 128


def step_of(rows: int, number: int) -> StepResult:
    """Every row got a token."""
    row_results = tuple(RowResult(row, 1, PROMPT_TOKENS + number, number, (7,), (), "", False) for row in range(rows))
    return StepResult("life", 1, 1, number, row_results, (), (), 0, rows, number * 1_000, number * 1_000 + 900)


def cost_s(log: EventLog, results: Sequence[StepResult]) -> float:
    """CPU seconds a step."""
    begun_s = time.process_time()
    for result in results:
        log.append(result.step_number * 0.02, (result,))
        acked: list[Command] = [Send("life", Ack(1, result.step_number))]
        log.decided(acked if result.step_number % STEPS_AN_ACK == 0 else [], [])
    return (time.process_time() - begun_s) / len(results)


def measure(rows: int, directory: str) -> tuple[float, float, float]:
    """CPU seconds of a step without a file and with one, and bytes of a step in the file."""
    policy, results = Policy("c0", "m"), [step_of(rows, number) for number in range(1, STEPS + 1)]
    path = os.path.join(directory, "events.jsonl")
    with open_log(policy, 1, "") as none, open_log(policy, 1, path) as log:
        without_s, with_s = cost_s(none, results), cost_s(log, results)
    return without_s, with_s, log_path(path, 1).stat().st_size / STEPS


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=32, help="sequences of a step")
    arguments.add_argument("--directory", type=Path, help="where to write [default: a temporary one]")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        without_s, with_s, step_bytes = measure(options.rows, directory)
    print(
        f"{options.rows} rows: {without_s * 1e6:,.1f} µs of CPU a step in memory alone, {with_s * 1e6:,.1f} µs with a"
    )
    print(f"file, which grows by {step_bytes:,.0f} bytes a step")


if __name__ == "__main__":
    main()
