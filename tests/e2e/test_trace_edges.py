"""The architecture, read from the trace of a real request."""

import pytest

from libs.contracts import flow
from tests.e2e.client import complete, until
from tests.e2e.conftest import StackFactory
from tests.fakes.collector import SeenSpan, collector

pytestmark = pytest.mark.e2e


def edges(spans: list[SeenSpan]) -> set[tuple[str | None, str]]:
    names = {span.span_id: span.name for span in spans}
    return {(names[span.parent_id] if span.parent_id else None, span.name) for span in spans}


@pytest.mark.parametrize("role", ["hybrid", "disaggregated"])
async def test_a_request_shows_exactly_the_edges_of_the_flow(stack: StackFactory, role: str) -> None:
    """Every hop once, each under the one that caused it, across HTTP, JetStream, gRPC and NATS."""
    with collector() as seen:
        running = stack(role=role, otlp_endpoint=seen.endpoint)
        body = {"model": running.model, "prompt": "One two three", "max_tokens": 4, "temperature": 0}
        await complete(running.base_url, {**body, "ignore_eos": True})
        expected = flow.edges(disaggregated=role == "disaggregated")

        await until(
            lambda: len(seen.trace_of(flow.GATEWAY_REQUEST)) >= len(expected),
            within_s=15,
            what=f"all spans: {seen.spans}",
        )

        trace = seen.trace_of(flow.GATEWAY_REQUEST)
        assert edges(trace) == expected
        assert len(trace) == len(expected)
        assert {span.service for span in trace} == {span.name.split(".")[0] for span in trace}
        assert all(0 < span.start_ns <= span.end_ns for span in trace)
        running.stop()
