"""What tracing costs: CPU time of all that is written down and exported about a request, in every service, counted in
this process against no tracing.

`python -m bench.trace_cost` counts it alone; with `--run-dir DIR` of a stack that is up also what the services of that
stack spend on such a request, and the share. Requests are 128 tokens in, 128 out, eight at once.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

import psutil

from bench.step_host import resident
from deploy.local.run_dir import RunDir, State
from libs.contracts import conventions as names
from libs.contracts import flow
from libs.contracts.messages import Resident, RowResult, StepResult
from libs.contracts.trace_records import Decided, Order, Served, Tokenized
from libs.engine.worker.residences import Residences
from libs.engine.worker.step_values import StepReport
from libs.runtime.ring import COMPANY_S as RECORDS_WAIT_S
from libs.runtime.ring import OFF, Ring, open_ring
from libs.runtime.span_outbox import COMPANY_S as SPANS_WAIT_S
from libs.runtime.telemetry import telemetry
from libs.runtime.tracing import is_exported, leaf, start_span
from libs.timeline.phases import Phase, gateway_phases, tokenizer_phases
from services.scheduler.decision_records import DecisionRecords
from services.scheduler.state import Policy
from services.scheduler.state import State as CellState

AT_ONCE, PROMPT_TOKENS, NEW_TOKENS = 8, 128, 128
REASONS = ("behind_older", "no_blocks", "admitted", "handed_over", "decoding", "stopped", "delivered")
STEP_NS = 15_000_000


COLLECTOR = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def batch_cost_s(ring: Ring, number: int, *, exported: bool = False) -> float:
    """CPU seconds of this process per request: what the services do to write down, and export, one batch of them."""
    guests = tuple(
        replace(resident(row, PROMPT_TOKENS, NEW_TOKENS), request_id=f"cmpl-{number:08}{row:024}")
        for row in range(AT_ONCE)
    )
    reports = [_report(guests, number, token) for token in range(NEW_TOKENS)]
    stays, decisions = Residences("decode_worker.decode", ring), None
    if ring.is_on:
        decisions = DecisionRecords(ring, CellState(Policy("c0", "m"), 1), lambda now_s: int(now_s * 1e9))
    started_s = time.process_time()
    roots = [start_span(flow.GATEWAY_REQUEST) for _ in guests] if exported else []
    if roots:
        guests = tuple(replace(g, traceparent=root.traceparent) for g, root in zip(guests, roots, strict=True))
    stays.begin(guests, at_ns=1)
    for report in reports:
        stays.note(replace(report, residents=guests))
        if decisions is not None:
            decisions.on_turn(report.result.ended_ns / 1e9, (report.result,), (), ())
    stays.end(guests, reports[-1].result.ended_ns)
    if ring.is_on:
        for guest in guests:
            _write_rest(ring, guest.request_id, guest.traceparent, reports[-1].result.ended_ns)
        for root in roots:
            root.end()
        time.sleep(2 * (SPANS_WAIT_S if exported else RECORDS_WAIT_S))  # until their threads have sent and written them
    return (time.process_time() - started_s) / AT_ONCE


def _report(guests: tuple[Resident, ...], number: int, token: int) -> StepReport:
    rows = tuple(RowResult(g.sequence, 1, PROMPT_TOKENS + token, token, (7,), (), "", False) for g in guests)
    step = number * NEW_TOKENS + token + 1
    result = StepResult("life", 1, 1, step, rows, (), (), 0, AT_ONCE, step * STEP_NS + 90_000, (step + 1) * STEP_NS)
    return StepReport(result, guests)


def _write_rest(ring: Ring, request_id: str, traceparent: str, at_ns: int) -> None:
    """What gateway, tokenizer and scheduler write beside steps."""
    served = Served(request_id, "ab" * 16, "m", "chat", True, 0, outcome="length")
    tokenized = Tokenized(request_id, 0, prompt_tokens=128, cell="c0")
    for record in (served, tokenized):
        times = [name for name in record.__struct_fields__ if name.endswith("_ns")]
        for later_ns, name in enumerate(times):
            setattr(record, name, at_ns + later_ns)
    ring.put(served)
    ring.put(tokenized)
    for reason in REASONS:
        ring.put(Decided(request_id, at_ns, reason, 3, 8, 9, 90, 100))
    for _ in range(12):  # an admission, two chunks, grants, a removal
        ring.put(Order(at_ns, "decode_worker-0", 7, ((request_id, 0, 128),), (), (), (), 90, 91, 100, 0, 8))
    if is_exported(traceparent):
        for hop in (flow.TOKENIZE, flow.SCHEDULE, flow.DELIVER):
            start_span(hop, parent=traceparent).end()
        waits = [Phase(names.WAIT + reason, at_ns, at_ns + 1) for reason in ("tokenizer", "scheduler", *REASONS[:2])]
        for phase in (*gateway_phases(served), *tokenizer_phases(tokenized), *waits):
            leaf(phase.name, traceparent, phase.start_ns, phase.end_ns)


def of_stack(state: State, requests: int, prompt_tokens: int = PROMPT_TOKENS, new_tokens: int = NEW_TOKENS) -> float:
    """CPU seconds per request of all services, the engine included. No two prompts begin alike."""
    services = [psutil.Process(child.pid) for child in state.children]
    before_s = sum(_cpu_s(process) for process in services)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda number: _complete(state, number, prompt_tokens, new_tokens), range(requests)))
    return (sum(_cpu_s(process) for process in services) - before_s) / requests


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _complete(state: State, number: int, prompt_tokens: int, new_tokens: int) -> None:
    ids = [1000 + (number * 7919 + n * 31) % 20_000 for n in range(prompt_tokens)]
    body = {"model": state.model, "prompt": ids, "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
    request = Request(
        f"{state.base_url}/completions",
        json.dumps({**body, "stream": True}).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(request) as answer:
        answer.read()


async def cost_s(rounds: int, *, exported: bool = False) -> float:
    """CPU seconds per request: with a ring that writes to a disk, and where `exported` all spans sent to a collector,
    the threads for that included, less those without; medians.
    """
    with_s, without_s = [], []
    async with AsyncExitStack() as opened:
        directory = opened.enter_context(tempfile.TemporaryDirectory())
        ring = await opened.enter_async_context(open_ring(directory, "bench", "bench-0"))
        if exported:
            endpoint = await opened.enter_async_context(_collector())
            await opened.enter_async_context(telemetry("bench", "bench-0", endpoint))
        for number in range(rounds):
            with_s.append(batch_cost_s(ring, number, exported=exported))
            without_s.append(batch_cost_s(OFF, number))
    return statistics.median(with_s) - statistics.median(without_s)


@asynccontextmanager
async def _collector() -> AsyncIterator[str]:
    """One that takes everything, in a process of its own: its CPU time is not ours."""
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--run-dir", type=Path)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--requests", type=int, default=16)
    options = arguments.parse_args()
    ring_s = asyncio.run(cost_s(options.rounds))
    everything_s = asyncio.run(cost_s(max(3, options.rounds // 4), exported=True))
    print(f"the ring: {ring_s * 1e6:,.0f} µs of CPU a request, all services together")
    print(f"the ring, and every span sent to a collector: {everything_s * 1e6:,.0f} µs")
    if options.run_dir is not None:
        state = RunDir(options.run_dir.absolute()).live_state()
        if state is None:
            raise SystemExit(f"nothing runs in {options.run_dir}")
        whole_s = of_stack(state, options.requests)
        shares = f"the ring is {ring_s / whole_s:.2%} of it, everything {everything_s / whole_s:.2%}"
        print(f"the stack: {whole_s * 1e3:,.1f} ms of CPU a request; {shares}")


if __name__ == "__main__":
    main()
