"""What a gateway writes down of a request, and whose traces it has exported."""

from typing import Any

import pytest

from libs.contracts import conventions as names
from libs.contracts.trace_records import Served
from libs.runtime.tracing import Span, start_span
from services.gateway import observe
from tests.unit.gateway.conftest import SAMPLE_KEY, Gateway
from tests.unit.gateway.test_generate import play

TEXT = [*b"hello"]


def served(gateway: Gateway) -> Served:
    (record,) = gateway.service.ring.take()
    assert isinstance(record, Served)
    return record


def moments(record: Served) -> list[int]:
    """Those that were, in the order of their names."""
    times = [getattr(record, name) for name in record.__struct_fields__ if name.endswith("_ns")]
    return [time_ns for time_ns in times if time_ns]


async def test_a_stream_is_written_down_with_all_its_moments_in_order(gateway: Gateway) -> None:
    """Ten of them, from its arrival to its end; and the trace that metrics name has an id without any collector."""
    call = gateway.complete(max_tokens=40, stream=True)
    request = await play(gateway, call, TEXT, "length", cached_tokens=2)
    await call.whole()

    record = served(gateway)

    assert (record.request_id, record.outcome, record.error) == (request.request_id, "length", "")
    assert (record.generated_tokens, record.cached_tokens, record.stream) == (len(TEXT), 2, True)
    assert len(moments(record)) == 10 and moments(record) == sorted(moments(record))
    assert len(record.trace_id) == 32


async def test_a_whole_answer_has_no_first_write(gateway: Gateway) -> None:
    """It is written once; its first token came all the same."""
    call = gateway.complete(max_tokens=40)
    await play(gateway, call, TEXT, "length")
    await call.whole()

    record = served(gateway)

    assert record.first_row_ns and not record.first_write_ns
    assert moments(record) == sorted(moments(record))


async def test_a_client_that_left_is_written_down_as_such(gateway: Gateway) -> None:
    """With what it had until then."""
    call = gateway.complete(max_tokens=40, stream=True)
    await play(gateway, call, TEXT[:2], "")
    await call.part()
    call.leave()
    await call.task

    record = served(gateway)

    assert (record.outcome, record.error) == ("abort", "client_gone")


@pytest.mark.parametrize(("sent", "is_wanted"), [(SAMPLE_KEY, True), ("another", False), ("", False)])
async def test_a_request_with_the_operators_key_is_exported_whatever_the_ratio(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, sent: str, is_wanted: bool
) -> None:
    """The attribute is there when the span starts: that is when sampling is decided."""
    seen: list[Any] = []

    def start(name: str, **more: Any) -> Span:
        seen.append(more.get("attributes"))
        return start_span(name, **more)

    monkeypatch.setattr(observe, "start_span", start)
    headers = {"x-headrace-trace": sent} if sent else {}
    call = gateway.call("/v1/completions", {"prompt": "hi", "max_tokens": 40}, headers=headers)
    await play(gateway, call, TEXT, "length")
    await call.whole()

    assert seen[0].get(names.EXPORT_WANTED, False) is is_wanted
