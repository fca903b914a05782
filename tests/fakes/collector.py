"""An OTLP/HTTP collector that keeps every span it is sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class SeenSpan:
    service: str
    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start_ns: int
    end_ns: int
    links: tuple[bytes, ...] = ()  # span ids


@dataclass(slots=True)
class Collector:
    endpoint: str
    spans: list[SeenSpan] = field(default_factory=list)
    stalled: Event = field(default_factory=Event)  # while set, what is sent to it is never answered

    def add(self, payload: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(payload)
        for resource in request.resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [
                    SeenSpan(
                        names["service.name"], s.name, s.trace_id, s.span_id, s.parent_span_id,
                        s.start_time_unix_nano, s.end_time_unix_nano, tuple(link.span_id for link in s.links),
                    )
                    for s in scope.spans
                ]  # fmt: skip

    def trace_of(self, root: str) -> list[SeenSpan]:
        """All spans of the trace whose root was seen last."""
        roots = [span for span in self.spans if span.name == root]
        return [span for span in self.spans if roots and span.trace_id == roots[-1].trace_id]


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free loopback port; `endpoint` is what a service is configured with."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            payload = self.rfile.read(int(self.headers["content-length"]))
            while seen.stalled.is_set():
                over.wait(0.05)
                if over.is_set():
                    return
            seen.add(payload)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    over = Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    seen = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
