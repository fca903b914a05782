"""Names on the wire are safe, and every service may do what its part of the path needs, no more."""

import pytest

from libs.contracts import flow


@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "a.b", "x > y", "*", "org/model:q4", "été"])
def test_a_name_is_one_token_of_a_subject(name: str) -> None:
    """No model name can widen a subject or reach another's."""
    assert flow.requests_subject(name).count(".") == 1
    assert not set(flow.requests_subject(name)) & set("*> ")


def test_a_hybrid_request_meets_no_prefill_worker() -> None:
    """Its edges are the disaggregated ones less the two of the prefill worker."""
    assert flow.edges(disaggregated=True) - flow.edges(disaggregated=False) == {
        (flow.SCHEDULE, flow.PREFILL),
        (flow.PREFILL, flow.DELIVER),
    }


def test_every_hop_hangs_on_one_before_it() -> None:
    """The path is connected and starts at the gateway."""
    seen: set[str | None] = {None}
    for hop in flow.HOPS:
        assert hop.parent in seen
        seen.add(hop.span)


def test_only_the_scheduler_may_order_streams_about() -> None:
    """No other user may create, purge or delete a stream."""
    for service in flow.PERMISSIONS:
        allowed = flow.permissions(service).publish
        wide = [s for s in allowed if s in (">", "$JS.>", "$JS.API.>") or s.startswith("$JS.API.STREAM.CREATE")]
        assert bool(wide) == (service == "scheduler"), (service, wide)
