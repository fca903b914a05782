"""The reader of streamed answers, fed with bytes in every cut."""

import pytest

from bench.event_stream import BrokenAnswer, EventReader

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nServer: x\r\n\r\n"
    b"d\r\ndata: {one}\n\n\r\n"
    b'1b;note="x"\r\n: ping\n\ndata:{two}\r\ndata: {\r\n'
    b"8\r\nthree}\n\n\r\n"
    b"e\r\ndata: [DONE]\n\n\r\n"
    b"0\r\n\r\n"
)
EVENTS = [b"{one}", b"{two}", b"{three}", b"[DONE]"]


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 50, 1000])
def test_events_come_out_whole_however_the_bytes_are_cut(cut: int) -> None:
    """Chunks, lines and reads may break anywhere: the events are the same."""
    reader = EventReader()

    events = [event for n in range(0, len(CHUNKED), cut) for event in reader.feed(CHUNKED[n : n + cut])]

    assert events == EVENTS
    assert (reader.status, reader.ended) == (200, True)


def test_an_event_is_given_before_its_chunk_is_whole() -> None:
    """What counts is when an event's last byte has come, not when the server closes the chunk."""
    reader = EventReader()

    assert reader.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\ndata: now\n\ndata: la") == [b"now"]
    assert not reader.ended


def test_a_body_without_chunks_ends_at_its_length() -> None:
    """A server may tell the length instead."""
    reader = EventReader()

    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndata: a") == []
    assert reader.feed(b"\n\n") == [b"a"]
    assert reader.ended


def test_a_body_may_last_until_the_connection_closes() -> None:
    """Without a length or chunks only the closing ends it."""
    reader = EventReader()

    assert reader.feed(b"HTTP/1.0 200 OK\r\n\r\ndata: a\n\n") == [b"a"]
    assert not reader.ended


def test_another_status_keeps_the_body_for_the_message() -> None:
    """An error's text is not taken for events."""
    reader = EventReader()

    assert reader.feed(b"HTTP/1.1 503 Busy\r\nContent-Length: 11\r\n\r\ndata: later") == []
    assert (reader.status, reader.error_body, reader.ended) == (503, b"data: later", True)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_not_http_is_refused(answer: bytes) -> None:
    """A broken answer is an error, not an empty stream."""
    with pytest.raises(BrokenAnswer):
        EventReader().feed(answer)
