"""One request's states, apart from everything that moves it."""

import pytest

from libs.contracts.errors import Unavailable
from libs.contracts.messages import Accepted, Resent
from services.gateway.metrics import Metrics
from services.gateway.observe import Observer
from services.gateway.stream import LOST_S, NEVER_CAME_S, ClientGone, Phase, Stream
from services.gateway.validate import Kind, validate
from services.gateway.wire import Ticket
from tests.unit.gateway.backend import CELL, MODEL, ByteTokenizer, row
from tests.unit.gateway.conftest import CATALOG

ID = "cmpl-1"
ACCEPTED = Accepted(ID, 1, CELL, 3, ())
UNKNOWN = Resent(False, 0, (), (), "")


def stream() -> Stream:
    request = validate(Kind.COMPLETION, b'{"model":"bytes","prompt":"x"}', CATALOG)
    return Stream(Ticket(ID, "g", 100.0, 0), request, ByteTokenizer(), Observer(ID, request, Metrics(MODEL), 0.0))


async def test_a_request_goes_through_its_phases() -> None:
    """sent, accepted, streaming, complete; over at the last."""
    subject, seen = stream(), []
    seen.append((subject.phase, subject.over))
    subject.on_accepted(ACCEPTED, 1.0)
    seen.append((subject.phase, subject.over))
    subject.on_row(row(ID, 0, b"a"), CELL, 2.0)
    seen.append((subject.phase, subject.over))
    subject.on_row(row(ID, 1, b"b", "length"), CELL, 3.0)
    seen.append((subject.phase, subject.over))

    assert seen == [
        (Phase.SENT, False),
        (Phase.ACCEPTED, False),
        (Phase.STREAMING, False),
        (Phase.COMPLETE, True),
    ]


async def test_what_is_complete_cannot_fail() -> None:
    """The reader has all that it needs, whoever leaves or dies now."""
    subject = stream()
    subject.on_accepted(ACCEPTED, 1.0)
    subject.on_row(row(ID, 0, b"a", "length"), CELL, 2.0)
    subject.fail(ClientGone())

    assert [delta.text async for delta in subject.deltas()] == ["a"]


async def test_cached_tokens_are_those_of_the_first_token() -> None:
    """A recomputed request finds its own blocks again; the client's figure does not change."""
    subject = stream()
    subject.on_accepted(ACCEPTED, 1.0)
    subject.on_row(row(ID, 0, b"a", cached_tokens=16), CELL, 2.0)
    subject.on_row(row(ID, 1, b"b", cached_tokens=48), CELL, 3.0)

    assert subject.usage.cached_tokens == 16


async def test_a_slow_reader_gets_several_tokens_at_once() -> None:
    """Nothing piles up but text."""
    subject = stream()
    subject.request = validate(Kind.COMPLETION, b'{"model":"bytes","prompt":"x","stream":true}', CATALOG)
    subject.on_accepted(ACCEPTED, 1.0)
    for position, token_id in enumerate(b"abc"):
        subject.on_row(row(ID, position, [token_id]), CELL, 2.0)
    reader = subject.deltas()

    assert (await anext(reader)).text == "abc"


def test_a_request_that_the_scheduler_forgot_is_lost_after_a_while() -> None:
    """A restarted scheduler may need a moment to know it again; beyond that the client is told."""
    subject = stream()
    subject.on_accepted(ACCEPTED, 1.0)
    subject.on_row(row(ID, 0, b"a"), CELL, 2.0)
    (choice,) = subject.choices
    subject.on_resent(choice, UNKNOWN, 10.0)
    subject.on_resent(choice, None, 12.0)
    subject.on_resent(choice, UNKNOWN, 10.0 + LOST_S - 0.1)

    with pytest.raises(Unavailable):
        subject.on_resent(choice, UNKNOWN, 10.0 + LOST_S)


def test_a_request_on_its_way_is_not_lost() -> None:
    """Before the first token it may still wait in a queue; after the gateway was frozen that is doubted."""
    subject = stream()
    subject.on_accepted(ACCEPTED, 1.0)
    (choice,) = subject.choices
    for now_s in (10.0, 20.0, 30.0):
        subject.on_resent(choice, UNKNOWN, now_s)
    subject.doubt()
    subject.on_resent(choice, UNKNOWN, 40.0)

    with pytest.raises(Unavailable):
        subject.on_resent(choice, UNKNOWN, 50.0)


def test_a_request_that_never_came_is_lost_at_last() -> None:
    """Its scheduler may have dropped it for beats of ours that did not arrive; nobody else would tell the client."""
    subject = stream()
    subject.on_accepted(ACCEPTED, 1.0)
    (choice,) = subject.choices
    subject.on_resent(choice, UNKNOWN, 10.0)
    subject.on_resent(choice, UNKNOWN, 10.0 + NEVER_CAME_S - 0.1)

    with pytest.raises(Unavailable):
        subject.on_resent(choice, UNKNOWN, 10.0 + NEVER_CAME_S)


def test_a_request_known_again_is_not_lost() -> None:
    """Only an unbroken while counts."""
    subject = stream()
    subject.on_accepted(ACCEPTED, 1.0)
    subject.on_row(row(ID, 0, b"a"), CELL, 2.0)
    (choice,) = subject.choices
    subject.on_resent(choice, UNKNOWN, 10.0)
    subject.on_resent(choice, Resent(True, 1, (), (), ""), 12.0)
    subject.on_resent(choice, UNKNOWN, 16.0)

    assert not subject.over
