"""From reports of tokens to text: stop strings, ends, characters that are spread over tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.choice import Choice
from services.gateway.reading import Reading
from tests.unit.gateway.backend import EOS, ByteTokenizer


def choice(*stops: str, min_tokens: int = 0) -> Choice:
    return Choice(0, ByteTokenizer(), Reading(64, min_tokens, stops))


def run(subject: Choice, ids: list[int], end: str, cuts: list[int] | None = None) -> list[str]:
    """Text of each delta when the ids come in pieces that begin at `cuts`."""
    texts = []
    starts = sorted({0, *(cuts if cuts is not None else range(len(ids)))})
    for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
        subject.add(start, ids[start:stop], end if stop == len(ids) else "")
        if delta := subject.take():
            texts.append(delta.text)
    return texts


def test_text_comes_token_by_token_and_the_reason_with_the_last() -> None:
    """One delta a token, nothing empty, then nothing more."""
    subject = choice()

    assert run(subject, list(b"abc"), "length") == ["a", "b", "c"]
    assert (subject.reason, subject.told, subject.take()) == ("length", True, None)


def test_the_token_that_ended_it_is_counted_and_not_shown() -> None:
    """A stop id is a visible letter elsewhere; as an end it is no text."""
    subject = choice()

    assert run(subject, list(b"ab."), "stop") == ["a", "b", ""]
    assert (subject.tokens, subject.reason) == (3, "stop")


def test_a_character_comes_with_its_last_byte() -> None:
    """No delta holds a part of it."""
    assert run(choice(), [*"é€".encode()], "length") == ["é", "€"]


def test_who_wants_ids_has_each_as_it_comes() -> None:
    """A part of a character, or what may become a stop string, is a delta without text; nothing is told twice."""
    subject, told = Choice(0, ByteTokenizer(), Reading(64, stops=("xyz",), tells_ids=True)), []
    for place, token in enumerate("éxyw".encode()):
        subject.add(place, [token], "length" if token == ord("w") else "")
        told.append(subject.take())

    assert [(delta.text, [*delta.token_ids]) for delta in told if delta] == [
        ("", [0xC3]),
        ("é", [0xA9]),
        ("", [ord("x")]),
        ("", [ord("y")]),
        ("xyw", [ord("w")]),
    ]


def test_a_character_cut_off_by_the_limit_becomes_one_replacement() -> None:
    """The same, streamed or not."""
    cut = list("a🫠".encode())[:-1]

    assert "".join(run(choice(), cut, "length")) == "a\ufffd"
    assert run(choice(), cut, "length", cuts=[]) == ["a\ufffd"]


def test_a_stop_string_ends_the_text_before_it() -> None:
    """Counted to the token that completed it, which is what the scheduler is told."""
    subject = choice("KLM")

    texts = run(subject, list(b"GHI KLMNO"), "length")

    assert "".join(texts) == "GHI " and not any("K" in text for text in texts)
    assert (subject.tokens, subject.stopped_at, subject.reason) == (7, 6, "stop")


def test_a_held_beginning_of_a_stop_string_is_released_at_another_end() -> None:
    """What never became a stop string is text."""
    subject = choice("xyz")

    assert "".join(run(subject, [*b"axy", EOS], "stop")) == "axy"
    assert subject.stopped_at is None


def test_min_tokens_come_before_any_stop_string() -> None:
    """A stop string in the first tokens does not count."""
    subject = choice("a", min_tokens=2)

    assert "".join(run(subject, list(b"aabab"), "length")) == "aab"
    assert subject.stopped_at == 3


def test_tokens_behind_a_stop_string_are_ignored() -> None:
    """Those that were on their way when it was found."""
    subject = choice("b")
    run(subject, list(b"ab"), "")

    assert subject.add(2, list(b"cd"), "length") == 0
    assert (subject.tokens, subject.reason) == (2, "stop")


def test_an_end_before_its_tokens_waits_for_them() -> None:
    """Finished is not the end for the client while a token is missing."""
    subject = choice()
    subject.add(0, [97], "")
    subject.finish(2, "length")

    assert subject.reason == "" and subject.log.has_gap
    subject.add(1, [98], "length")
    assert subject.reason == "length"


def test_a_delta_has_the_ids_whose_text_it_holds() -> None:
    """Ids of held text wait with it; all ids come once."""
    subject = choice()
    subject.add(0, [*"é".encode()][:1], "")
    assert subject.take() is None
    subject.add(1, [*"é".encode()][1:], "")
    delta = subject.take()
    assert delta is not None and list(delta.token_ids) == [*"é".encode()]
    subject.add(2, [97, 98], "length")
    delta = subject.take()
    assert delta is not None and (delta.text, list(delta.token_ids)) == ("ab", [97, 98])


@given(st.text(max_size=12), st.lists(st.text("abé🫠", min_size=1, max_size=3), max_size=3), st.data())
def test_pieces_do_not_change_the_text(text: str, stops: list[str], data: st.DataObject) -> None:
    """However reports are cut, text, count, and reason are those of one report."""
    ids = [*text.encode(errors="ignore")]
    if not ids:
        return
    cuts = data.draw(st.lists(st.integers(0, len(ids) - 1)))
    pieces, one = choice(*stops), choice(*stops)

    assert "".join(run(pieces, ids, "length", cuts)) == "".join(run(one, ids, "length", []))
    assert (pieces.tokens, pieces.reason, pieces.stopped_at) == (one.tokens, one.reason, one.stopped_at)


@pytest.mark.parametrize("end", ["stop", "length"])
def test_an_end_without_text_is_still_told(end: str) -> None:
    """A client must learn the reason."""
    subject = choice()
    subject.add(0, [EOS], end)
    delta = subject.take()

    assert delta is not None and (delta.text, delta.finish_reason) == ("", end)
