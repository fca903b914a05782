"""Events as the official client's decoder needs them."""

import json

import httpx
from openai._streaming import SSEDecoder

from services.gateway import sse


def test_events_are_what_the_official_decoder_reads() -> None:
    """Data alone: no id, no retry, no event name."""
    body = sse.event(b'{"a":1}') + sse.DONE

    decoded = list(SSEDecoder().iter_bytes(iter([body])))

    assert [event.data for event in decoded] == ['{"a":1}', "[DONE]"]
    assert all(event.id in (None, "") and event.retry is None and event.event is None for event in decoded)


def test_no_text_ends_the_line_of_its_event() -> None:
    """Client libraries know more ends of lines than JSON escapes."""
    told = "a\x85b\u2028c\u2029d\r\n\x0b\x1c é"

    (line, end) = httpx.Response(200, content=sse.event(sse.text_of(told))).iter_lines()

    assert json.loads(line.removeprefix("data: ")) == told and end == ""
