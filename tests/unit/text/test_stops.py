"""Stop strings in streamed text: what is shown, what is held back, and which token ended it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.text.stops import StopMatch, StopMatcher

LETTERS = st.text(alphabet="ab", max_size=6)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4).map(tuple)


def stream(matcher: StopMatcher, deltas: list[str]) -> list[str]:
    """All that the matcher lets through, one entry a token and one at the end."""
    return [matcher.push(position, delta) for position, delta in enumerate(deltas)] + [matcher.finish()]


def expected(deltas: list[str], stops: tuple[str, ...], min_tokens: int) -> tuple[str, StopMatch | None]:
    """The definition, in one go: the stop string with the earliest end, then the earliest start."""
    free, searched = "".join(deltas[:min_tokens]), "".join(deltas[min_tokens:])
    found = [(searched.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in searched]
    if not found:
        return free + searched, None
    end, _, stop = min(found)
    position = next(
        p for p in range(len(deltas)) if len("".join(deltas[: p + 1])) >= len(free) + end and p >= min_tokens
    )
    return free + searched[: end - len(stop)], StopMatch(stop, position)


@given(st.lists(LETTERS, max_size=8), STOPS, st.integers(0, 4))
def test_streamed_text_and_match_equal_the_definition(deltas: list[str], stops: tuple[str, ...], minimum: int) -> None:
    """For any tokens, stop strings and min_tokens, streaming gives the text and the match of the whole."""
    matcher = StopMatcher(stops, minimum)

    text = "".join(stream(matcher, deltas))

    assert (text, matcher.match) == expected(deltas, stops, minimum)


@given(st.lists(LETTERS, max_size=8), STOPS)
def test_text_let_through_is_never_part_of_a_stop_string(deltas: list[str], stops: tuple[str, ...]) -> None:
    """At each step exactly the longest end that may begin a stop string is held back."""
    matcher, shown = StopMatcher(stops), ""
    for position, delta in enumerate(deltas):
        shown += matcher.push(position, delta)
        if matcher.match is not None:
            break
        so_far = "".join(deltas[: position + 1])
        ends = [so_far[-n:] for n in range(1, len(so_far) + 1) if any(stop.startswith(so_far[-n:]) for stop in stops)]
        assert matcher.held_chars == max(map(len, ends), default=0)
        assert shown == so_far[: len(so_far) - matcher.held_chars]


def test_pieces_of_a_stop_string_are_held_back() -> None:
    """Nothing of a stop string longer than a token is shown, and the token that completed it is named."""
    matcher = StopMatcher(("KLMNOPQ",))

    assert stream(matcher, ["GHIJ", " KL", "MNO", "PQ R", "ST"]) == ["GHIJ", " ", "", "", "", ""]
    assert matcher.match == StopMatch("KLMNOPQ", 3)


@pytest.mark.parametrize(("stop", "shown"), [("uick b", "The q"), ("ox ju", "The quick brown f"), ("e", "Th")])
def test_a_stop_string_may_begin_and_end_inside_tokens(stop: str, shown: str) -> None:
    """The cut is at the character, not at the token."""
    matcher = StopMatcher((stop,))

    assert "".join(stream(matcher, ["The", " quick", " brown", " fox", " jumps"])) == shown


def test_what_only_looked_like_a_stop_string_is_let_through() -> None:
    """A held end is shown as soon as it cannot become one, and at the end of the text."""
    assert stream(StopMatcher(("abc",)), ["xab", "d", "ab"]) == ["x", "abd", "", "ab"]


def test_a_stop_string_is_found_behind_its_own_beginning() -> None:
    """A failed match that holds the beginning of the true one does not hide it."""
    assert stream(StopMatcher(("aabaaac",)), ["aabaaab", "aaac"]) == ["aaba", "", ""]


def test_the_stop_string_is_shown_when_asked_for() -> None:
    """With include_stop the text ends with the stop string and nothing after it."""
    assert stream(StopMatcher(("7",), include_stop=True), ["5 6", " 7 8"]) == ["5 6", " 7", ""]


def test_early_tokens_are_not_searched() -> None:
    """A stop string that lies in, or begins in, the first min_tokens tokens does not count."""
    matcher = StopMatcher(("ab",), min_tokens=2)

    assert stream(matcher, ["ab", "a", "b", "xab"]) == ["ab", "a", "b", "x", ""]
    assert matcher.match == StopMatch("ab", 3)


def test_hostile_stop_strings_cost_no_more_than_others() -> None:
    """A long periodic stop string and text that keeps almost matching it stay linear."""
    matcher = StopMatcher(("a" * 5000 + "b",))

    shown = "".join(stream(matcher, ["a" * 10] * 2000))

    assert shown == "a" * 20000
