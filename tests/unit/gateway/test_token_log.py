"""Tokens arrive late, doubled, out of order, or not at all; the log is the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.errors import ExactnessViolation
from services.gateway.token_log import TokenLog

LIMIT = 64


def pieces(ids: list[int], end: str, cuts: list[tuple[int, int]]) -> list[tuple[int, list[int], str]]:
    """Reports of ids[a:b], the end told by those that reach it."""
    return [(a, ids[a:b], end if b == len(ids) else "") for a, b in cuts]


@st.composite
def reports(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, list[int], str]], list[tuple[int, list[int], str]]]:
    """Ids, reports of parts of them in any order, and the reports that make them whole."""
    ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    bounds = st.integers(0, len(ids))
    cuts = draw(st.lists(st.tuples(bounds, bounds).filter(lambda cut: cut[0] < cut[1]), max_size=12))
    whole = [(place, place + 1) for place in range(len(ids))]
    return ids, pieces(ids, "length", cuts), pieces(ids, "length", draw(st.permutations(whole)))


@given(reports())
def test_any_order_loss_and_doubling_gives_the_same_log(
    case: tuple[list[int], list[tuple[int, list[int], str]], list[tuple[int, list[int], str]]],
) -> None:
    """At every moment the log is a prefix of the truth, and in the end it is the truth."""
    ids, some, rest = case
    log, count = TokenLog(LIMIT), 0
    for position, part, end in (*some, *rest):
        count += log.add(position, part, end)
        assert log.ids == ids[: len(log.ids)] and count == len(log.ids)
        assert bool(log.end) == (log.ids == ids)

    assert (log.ids, log.end, log.has_gap) == (ids, "length", False)


def test_a_token_behind_a_gap_waits() -> None:
    """It counts as known, but is not part of the answer yet."""
    log = TokenLog(LIMIT)

    assert log.add(1, [5]) == 0
    assert (log.ids, log.has_gap) == ([], True)
    assert log.add(0, [4]) == 2
    assert (log.ids, log.has_gap) == ([4, 5], False)


def test_an_end_that_overtakes_its_tokens_is_told_when_they_are_here() -> None:
    """finish alone reveals the gap; the end shows with the last token."""
    log = TokenLog(LIMIT)
    log.finish(2, "stop")

    assert (log.end, log.has_gap) == ("", True)
    log.add(0, [1, 2])
    assert (log.end, log.has_gap) == ("stop", False)


@pytest.mark.parametrize("place", [0, 3])
def test_different_tokens_at_one_position_are_a_violation(place: int) -> None:
    """Delivered or still behind a gap: never a splice."""
    log = TokenLog(LIMIT)
    log.add(0, [1, 2])
    log.add(3, [4])

    with pytest.raises(ExactnessViolation):
        log.add(place, [9])


@pytest.mark.parametrize("total, end", [(3, "length"), (2, "stop"), (1, "length")])
def test_two_different_ends_are_a_violation(total: int, end: str) -> None:
    """Neither the place nor the reason of an end may change."""
    log = TokenLog(LIMIT)
    log.add(0, [1, 2], "length")

    with pytest.raises(ExactnessViolation):
        log.finish(total, end)


@pytest.mark.parametrize("known", [[1, 2, 3], []])
def test_an_end_before_known_tokens_is_a_violation(known: list[int]) -> None:
    """A total that tokens in the log, or behind a gap, exceed."""
    log = TokenLog(LIMIT)
    log.add(0, known)
    log.add(5, [6])

    with pytest.raises(ExactnessViolation):
        log.finish(2, "stop")


def test_a_token_behind_the_end_or_the_limit_is_a_violation() -> None:
    """The worker may not generate more than was asked for."""
    log = TokenLog(2)
    with pytest.raises(ExactnessViolation):
        log.add(2, [1])
    log.add(0, [1], "stop")
    with pytest.raises(ExactnessViolation):
        log.add(1, [2])


def test_the_gateways_own_end_wins() -> None:
    """After a cut nothing changes: not by more tokens, not by another end."""
    log = TokenLog(LIMIT)
    log.add(0, [1, 2, 3])
    log.cut(2, "stop")
    log.add(2, [9, 9], "length")
    log.finish(7, "length")

    assert (log.ids, log.end, log.has_gap) == ([1, 2], "stop", False)
