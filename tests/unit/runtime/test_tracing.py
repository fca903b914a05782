"""Trace context is passed on by a process that records nothing itself."""

import time
from datetime import UTC, datetime

import pytest

from libs.runtime.tracing import is_exported, leaf, monotonic_ns, start_span, wall_ns

PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


def test_without_an_sdk_the_parents_context_goes_on() -> None:
    """The next hop's parent is then ours, so the trace stays one."""
    with start_span("tokenizer.tokenize", parent=PARENT, attributes={"n": 1}) as span:
        span.set(cell="c0")
        span.event("chosen", blocks=3)

        assert span.traceparent == PARENT


@pytest.mark.parametrize(
    "parent",
    ["", "garbage", PARENT[:-1], PARENT.upper(), "00-" + "0" * 32 + PARENT[35:], "ff" + PARENT[2:], PARENT + "-x"],
)
def test_a_malformed_parent_is_no_parent(parent: str) -> None:
    """It came over a wire, so it is only taken when it is whole."""
    span = start_span("gateway.request", parent=parent)

    assert span.traceparent == ""
    span.end(error="internal")


def test_a_monotonic_time_becomes_a_wall_time() -> None:
    """The present moment of one clock is that of the other."""
    assert abs(wall_ns(time.monotonic_ns()) - time.time_ns()) < 1_000_000_000


@pytest.mark.parametrize(("flags", "expected"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_a_sampled_context_is_known_by_its_lowest_flag_alone(flags: str, expected: bool) -> None:
    """Others say other things; no context at all is not exported."""
    assert is_exported(PARENT[:-2] + flags) == expected
    assert not is_exported("")


def test_nothing_is_told_below_a_context_that_nobody_exports() -> None:
    """A leaf costs nothing then."""
    assert leaf("tokenizer.encode", PARENT[:-1] + "0", 1, 2) == ""


def test_a_moment_of_the_wall_clock_is_one_of_the_monotonic_clock() -> None:
    """The present one of both."""
    assert abs(monotonic_ns(datetime.now(UTC)) - time.monotonic_ns()) < 1_000_000_000
