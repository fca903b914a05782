"""Spans reach a collector with who sent them, and a collector that does not answer holds nobody up."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

pytestmark = pytest.mark.integration

PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
TRACE_ID, PARENT_ID = bytes.fromhex("0123456789abcdef" * 2), bytes.fromhex("0123456789abcdef")
PROGRAM = """
import asyncio, sys
from libs.runtime.telemetry import telemetry
from libs.runtime.tracing import start_span

async def main(endpoint, spans):
    async with telemetry("gateway", "gateway-1", endpoint):
        for number in range(spans):
            with start_span("gateway.request", parent=sys.argv[3], start_ns=1, attributes={"n": number}) as span:
                print(span.traceparent)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def run_program(endpoint: str, spans: int) -> str:
    """Run it in a process of its own, for there is one SDK a process; returns what it printed."""
    command = [sys.executable, "-c", PROGRAM, endpoint, str(spans), PARENT]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """An OTLP/HTTP collector: its address, and what it has received."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


async def test_a_span_arrives_with_its_parent_and_its_process() -> None:
    """Also the last one before the process ends."""
    with collector() as (endpoint, received):
        printed = await run_program(endpoint, 1)

    [resource] = [spans for request in received for spans in request.resource_spans]
    attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert (attributes["service.name"], attributes["service.instance.id"]) == ("gateway", "gateway-1")
    [span] = resource.scope_spans[0].spans
    assert (span.name, span.trace_id, span.parent_span_id) == ("gateway.request", TRACE_ID, PARENT_ID)
    assert span.start_time_unix_nano == 1
    assert printed.split("-")[1:3] == [TRACE_ID.hex(), span.span_id.hex()]


async def test_a_collector_that_never_answers_holds_nobody_up() -> None:
    """More spans than the queue holds are made at once, and the process ends within its own limit."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started_s = time.monotonic()

        await run_program(f"http://127.0.0.1:{silent.getsockname()[1]}", 10_000)

    assert time.monotonic() - started_s < 6


async def test_without_an_endpoint_the_parents_context_goes_on() -> None:
    """Nothing is exported, and the trace stays one."""
    assert (await run_program("", 1)).strip() == PARENT


SAMPLED = """
import asyncio, sys
from libs.contracts.conventions import EXPORT_WANTED
from libs.runtime.telemetry import telemetry
from libs.runtime.tracing import start_span

async def main(endpoint, ratio):
    async with telemetry("gateway", "gateway-1", endpoint, ratio):
        for number in range(200):
            with start_span("gateway.request", attributes={EXPORT_WANTED: number < 3}) as root:
                start_span("tokenizer.tokenize", parent=root.traceparent).end()

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""


@pytest.mark.parametrize(("ratio", "least", "most"), [(0.0, 3, 3), (0.5, 60, 140), (1.0, 200, 200)])
async def test_a_share_of_the_traces_and_every_wanted_one_is_exported(ratio: float, least: int, most: int) -> None:
    """Whole traces: what follows from a request is exported if that is."""
    with collector() as (endpoint, received):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", SAMPLED, endpoint, str(ratio))
        assert await process.wait() == 0

    spans = [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    roots = {span.trace_id for span in spans if not span.parent_span_id}

    assert least <= len(roots) <= most
    assert {span.trace_id for span in spans if span.parent_span_id} == roots
