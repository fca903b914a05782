"""How large a chunk may be."""

import pytest

from services.scheduler.chunk_size import FIRST_TOKENS, MIN_TOKENS, SWIFT_TOKENS, ChunkSize, ChunkSizes, Pace

TARGET_S = 0.25


def settled(seconds_of: float, base_s: float = 0.0, *, start: int = FIRST_TOKENS) -> float:
    """Tokens after twenty chunks on a worker that needs base_s and so many seconds a token."""
    size = ChunkSize(TARGET_S, start)
    for _ in range(20):
        size.report(int(size.tokens), base_s + seconds_of * int(size.tokens))
    return size.tokens


@pytest.mark.parametrize(("token_s", "base_s"), [(0.002, 0.0), (0.002, 0.06), (0.0005, 0.1), (0.004, 0.02)])
def test_it_finds_the_size_that_takes_the_target(token_s: float, base_s: float) -> None:
    """From below and from above, whatever a step costs without tokens."""
    for start in (FIRST_TOKENS, 2000):
        found = settled(token_s, base_s, start=start)
        assert base_s + token_s * found == pytest.approx(TARGET_S, rel=0.1)


def test_it_never_more_than_doubles() -> None:
    """A quick step is no proof of what a much larger one takes."""
    size = ChunkSize(TARGET_S)
    size.report(FIRST_TOKENS, 0.001)
    assert size.tokens == 2 * FIRST_TOKENS


def test_one_step_too_long_is_enough_to_shrink() -> None:
    """The next one is cut by as much as this one was over."""
    size = ChunkSize(TARGET_S, 256)
    size.report(256, 1.0)
    assert size.tokens == 64


def test_the_rest_of_a_prompt_says_nothing() -> None:
    """Ten tokens in a moment do not make the next chunk small."""
    size = ChunkSize(TARGET_S, 200)
    size.report(10, 0.06)
    assert size.tokens == 200


def test_a_prompt_moves_on_however_slow_a_step_is() -> None:
    """Where the decoding rows alone take longer than the target."""
    size = ChunkSize(TARGET_S)
    size.report(16, 9.0)
    assert size.tokens == MIN_TOKENS


def test_a_step_that_took_too_long_never_lets_it_grow() -> None:
    """However many tokens it had: of the next, smaller one that says nothing."""
    size = ChunkSize(0.03, 17)
    size.report(114, 0.124)
    assert size.tokens == 17


def test_every_step_tells_what_fits_into_a_short_one() -> None:
    """With a chunk or without; it is three tenths of the streams' target, or half longer than the quickest step."""
    sizes = ChunkSizes(chunk_target_s=0.25, itl_target_s=0.1)
    swift = sizes.of(Pace.SWIFT)
    sizes.report(20, 0.04, None)
    assert swift.target_s == pytest.approx(0.06) and swift.tokens == pytest.approx(30)
    sizes.report(40, 0.12, Pace.BESIDE)
    assert swift.tokens == pytest.approx(20) and sizes.of(Pace.BESIDE).tokens < FIRST_TOKENS
    sizes.report(4, 0.01, None)
    assert swift.target_s == pytest.approx(0.03)
    sizes.report(10, 0.9, Pace.SWIFT)
    assert swift.tokens == SWIFT_TOKENS
