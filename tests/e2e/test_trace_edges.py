"""The architecture, read from the trace of a real request."""

import time

import pytest

from libs.contracts import conventions as names
from libs.contracts import flow
from tests.e2e.client import complete, until
from tests.e2e.conftest import StackFactory
from tests.fakes.collector import SeenSpan, collector

pytestmark = pytest.mark.e2e

HOPS = {hop.span for hop in flow.HOPS}
LEAVES = {  # of every request whose prompt is one chunk
    *(names.RECEIVE, names.VALIDATE, names.PUBLISH, names.DETOKENISE),
    *(names.WAIT_TOKENIZER, names.PULL, names.ENCODE, names.LOOK_UP, names.PUBLISH_SEQUENCE),
    *(names.WAIT_SCHEDULER, names.CHUNK, names.STEPS),
}


def edges(spans: list[SeenSpan]) -> set[tuple[str | None, str]]:
    names = {span.span_id: span.name for span in spans}
    return {(names[span.parent_id] if span.parent_id else None, span.name) for span in spans}


@pytest.mark.parametrize("role", [pytest.param("hybrid", marks=pytest.mark.whole), "disaggregated"])
async def test_a_request_shows_exactly_the_edges_of_the_flow(stack: StackFactory, role: str) -> None:
    """Every hop once, under the one that caused it, with its phases; when the collector stalls, nothing changes."""
    with collector() as seen:
        running = stack(role=role, otlp_endpoint=seen.endpoint)
        body = {"model": running.model, "prompt": "One two three", "max_tokens": 4, "temperature": 0}
        body |= {"ignore_eos": True}
        began_s = time.monotonic()
        answer = await complete(running.base_url, body)
        took_s = time.monotonic() - began_s
        expected = flow.edges(disaggregated=role == "disaggregated")

        def trace() -> list[SeenSpan]:
            return seen.trace_of(flow.GATEWAY_REQUEST)

        def hops() -> list[SeenSpan]:
            return [span for span in trace() if span.name in HOPS]

        def leaves() -> list[SeenSpan]:
            return [span for span in trace() if span.name not in HOPS]

        await until(
            lambda: len(hops()) >= len(expected) and {leaf.name for leaf in leaves()} >= LEAVES,
            within_s=15,
            what=f"all spans: {seen.spans}",
        )

        assert edges(hops()) == expected
        assert len(hops()) == len(expected)
        assert {span.service for span in hops()} == {span.name.split(".")[0] for span in hops()}
        assert all(0 < span.start_ns <= span.end_ns for span in trace())
        assert {leaf.parent_id for leaf in leaves()} <= {hop.span_id for hop in hops()}
        check_steps(seen.spans, trace())

        seen.stalled.set()
        began_s = time.monotonic()
        assert (await complete(running.base_url, body))["choices"] == answer["choices"]
        assert time.monotonic() - began_s < took_s + 1
        running.stop()


def check_steps(spans: list[SeenSpan], trace: list[SeenSpan]) -> None:
    """Each is a trace of its own, linked to the stays in its batch, and from them back."""
    steps = {span.span_id: span for span in spans if span.name == names.WORKER_STEP}
    stays = {span.span_id for span in trace if span.name in (flow.PREFILL, flow.DECODE)}
    linked = [link for leaf in trace if leaf.name in (names.CHUNK, names.STEPS) for link in leaf.links]
    assert len(linked) == len(set(linked)) == 4 and set(linked) <= steps.keys()
    for link in linked:
        step = steps[link]
        assert not step.parent_id and set(step.links) & stays
        assert step.trace_id not in {span.trace_id for span in trace}
