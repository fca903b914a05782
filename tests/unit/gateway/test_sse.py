"""Events as the official client's decoder needs them."""

from openai._streaming import SSEDecoder

from services.gateway import sse


def test_events_are_what_the_official_decoder_reads() -> None:
    """Data alone: no id, no retry, no event name."""
    body = sse.event(b'{"a":1}') + sse.DONE

    decoded = list(SSEDecoder().iter_bytes(iter([body])))

    assert [event.data for event in decoded] == ['{"a":1}', "[DONE]"]
    assert all(event.id in (None, "") and event.retry is None and event.event is None for event in decoded)
