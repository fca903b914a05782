"""Figures of one run, from times made to order."""

import pytest

from bench.client import BenchError, Reply
from bench.figures import (
    KINDS,
    advantage,
    differ,
    figures,
    gap_quantiles_ms,
    gaps_between_ms,
    median_interval,
    quantile,
    reached,
)
from bench.load import Outcome
from bench.scenarios import named


def reply(*arrivals_s: float, sent_s: float = 0.0, new_tokens: int = 0) -> Reply:
    return Reply(sent_s, arrivals_s, 128, new_tokens or len(arrivals_s))


def outcome(*replies: Reply, late: Reply | None = None, wall_s: float = 2.0) -> Outcome:
    return Outcome(replies, late, wall_s, 0.0)


def test_quantiles_lie_between_neighbours() -> None:
    """Linear between the two nearest values; the extremes are the smallest and the largest."""
    values = [4.0, 1.0, 3.0, 2.0]

    assert [quantile(values, share) for share in (0, 0.5, 0.9, 1)] == pytest.approx([1.0, 2.5, 3.7, 4.0])
    with pytest.raises(ValueError, match="nothing"):
        quantile([], 0.5)


@pytest.mark.parametrize(("count", "cut"), [(1, 0), (5, 0), (7, 0), (8, 1), (10, 1), (11, 2), (20, 5), (100, 41)])
def test_the_median_lies_between_two_values_nine_times_in_ten(count: int, cut: int) -> None:
    """As in tables of the sign test: of 20 values five on either side lie outside; few values have only extremes."""
    values = [float(n) for n in range(count)]

    assert median_interval(reversed(values)) == (values[cut], values[-1 - cut])
    with pytest.raises(ValueError, match="nothing"):
        median_interval([])


def test_a_stream_has_ttft_and_tpot() -> None:
    """TTFT counts from sending, TPOT is the mean of the later tokens even where two share an event."""
    two_in_one = reply(1.5, 1.7, 1.9, sent_s=1.0, new_tokens=5)

    assert (two_in_one.ttft_ms, two_in_one.tpot_ms) == pytest.approx((500, 100))
    assert reply(1.0).tpot_ms == 0


def test_one_stream_tells_ttft_tpot_and_tokens_a_second() -> None:
    """Medians over the requests, which repeat each other; tokens over the wall time; no percentiles of gaps."""
    (scenario,) = named("S1")

    found = figures(scenario, outcome(reply(0.1, 0.2, 0.3), reply(0.3, 0.5, 0.7), reply(0.2, 0.9, 1.6), wall_s=2.0))

    assert found == pytest.approx({"ttft_ms": 200, "tpot_ms": 200, "tok_s": 4.5})


@pytest.mark.parametrize("name", ["S3", "S5", "S7"])
def test_requests_that_meet_tell_means(name: str) -> None:
    """Some wait for others and some do not; a median would tell of the one half or of the other."""
    (scenario,) = named(name)

    found = figures(scenario, outcome(reply(0.1, 0.2, 0.3), reply(0.3, 0.5, 0.7), reply(0.2, 0.9, 1.6)))

    assert (found["ttft_ms"], found["tpot_ms"]) == pytest.approx((200, 1000 / 3))


def test_a_prompt_alone_tells_prompt_tokens_a_second() -> None:
    """1,024 tokens in half a second are 2,048 a second."""
    (scenario,) = named("S2")

    assert figures(scenario, outcome(reply(0.5))) == pytest.approx({"ttft_ms": 500, "prompt_tok_s": 2048})


def test_streams_together_tell_their_gaps() -> None:
    """Gaps of all streams are one population."""
    (scenario,) = named("S3")

    found = figures(scenario, outcome(reply(0.1, 0.2, 0.3), reply(0.1, 0.5)))

    assert found["itl_p50_ms"] == pytest.approx(100)
    assert found["itl_p99_ms"] == pytest.approx(394)


def test_a_shared_prefix_is_told_by_the_time_for_all() -> None:
    """Seconds for the whole batch first."""
    (scenario,) = named("S5")

    assert next(iter(figures(scenario, outcome(reply(0.1, 0.2), wall_s=6.0)).items())) == ("total_s", 6.0)


def test_only_gaps_while_the_late_prompt_waits_count() -> None:
    """From its arrival to its first token; a gap that began before counts whole, for it is the stall."""
    arrivals_s = (1.0, 1.1, 2.1, 2.2, 2.3)

    assert gaps_between_ms(arrivals_s, 1.5, 2.15) == pytest.approx([1000, 100])

    (scenario,) = named("S6")
    found = figures(scenario, outcome(reply(*arrivals_s), late=reply(2.15, sent_s=1.5)))
    assert found == pytest.approx({"ttft_ms": 650, "itl_p99_ms": 991, "itl_max_ms": 1000})


def test_streams_that_ended_before_the_late_prompt_prove_nothing() -> None:
    """Then there was nobody to be held up."""
    (scenario,) = named("S6")

    with pytest.raises(BenchError, match="ended before"):
        figures(scenario, outcome(reply(1.0, 1.1), late=reply(3.0, sent_s=2.0)))


def test_goodput_counts_requests_within_both_targets() -> None:
    """Of three, one is late and one is slow."""
    (scenario,) = named("S7")
    good, late, slow = reply(0.5, 0.55), reply(1.5, 1.55), reply(0.5, 0.7)

    found = figures(scenario, outcome(good, late, slow, wall_s=2.0))

    assert (found["good_share"], found["good_s"]) == pytest.approx((1 / 3, 0.5))


def test_every_figure_is_explained() -> None:
    """Each has a title, a unit and a direction."""
    streams, late = (reply(0.1, 0.2, 0.3), reply(0.1, 0.4)), reply(0.3, sent_s=0.15)

    for scenario in named(""):
        found = figures(scenario, outcome(*streams, late=late if scenario.late else None))
        assert found.keys() <= KINDS.keys()


def test_the_curve_of_gaps_is_empty_for_single_tokens() -> None:
    """A stream of one token has no gap."""
    assert gap_quantiles_ms(outcome(reply(0.1))) == []
    assert gap_quantiles_ms(outcome(reply(0.1, 0.2)))[0] == pytest.approx(100)


def test_better_means_above_one_in_both_directions() -> None:
    """Half the time and twice the rate are both twice as good; zero gives no ratio."""
    assert advantage(KINDS["tpot_ms"], 10, 20) == advantage(KINDS["tok_s"], 20, 10) == 2
    assert reached(KINDS["tpot_ms"], 10, 20) == reached(KINDS["tok_s"], 20, 10) == 0.5
    assert advantage(KINDS["good_share"], 0, 1) is None
    assert reached(KINDS["good_share"], 1, 0) is None


def test_probes_differ_by_their_worst_value() -> None:
    """In either direction."""
    assert differ({"a": 10, "b": 100}, {"a": 10, "b": 80}) == pytest.approx(0.25)
    assert differ({"a": 8}, {"a": 10}) == pytest.approx(0.25)
