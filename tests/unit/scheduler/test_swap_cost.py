"""What a preemption costs by measured rates, and which way is taken."""

import pytest

from services.scheduler.swap_cost import (
    COST,
    FIRST_BLOCK_S,
    RECOMPUTE,
    SWAP,
    WAIT,
    Costs,
    PrefillRate,
    SwapRates,
    choose,
    costs,
)

NEVER_S = float("inf")


@pytest.mark.parametrize(
    ("preemption", "costs", "way"),
    [
        (COST, Costs(0.001, 0.2, NEVER_S), SWAP),
        (COST, Costs(0.3, 0.2, NEVER_S), RECOMPUTE),
        (COST, Costs(0.3, 0.2, 0.1), WAIT),
        (COST, Costs(NEVER_S, 0.2, 0.3), RECOMPUTE),
        (SWAP, Costs(0.3, 0.2, 0.1), SWAP),
        (SWAP, Costs(NEVER_S, 0.2, 0.1), RECOMPUTE),
        (RECOMPUTE, Costs(0.001, 0.2, 0.1), RECOMPUTE),
    ],
)
def test_the_cheapest_way_is_taken_or_what_is_asked_for(preemption: str, costs: Costs, way: str) -> None:
    """A swap needs room in the tier; where one way is asked for, nobody waits."""
    assert choose(preemption, costs) == way


def test_rates_follow_the_reports() -> None:
    """The first report replaces the guess, both ways until something has come back; later ones move the mean."""
    rates = SwapRates()
    assert rates.out_s == FIRST_BLOCK_S

    rates.report(inward=False, blocks=4, seconds=0.4)
    assert (rates.out_s, rates.in_s) == pytest.approx((0.1, 0.1))
    rates.report(inward=True, blocks=2, seconds=0.1)
    assert rates.in_s == pytest.approx(0.05)
    for _ in range(50):
        rates.report(inward=False, blocks=1, seconds=0.01)
    assert rates.out_s == pytest.approx(0.01, rel=0.01)
    rates.report(inward=True, blocks=0, seconds=0.0)
    assert rates.in_s == pytest.approx(0.05)


def test_a_prefill_rate_is_the_time_of_whole_steps_over_their_tokens() -> None:
    """The first step with a chunk replaces the guess."""
    rate = PrefillRate()
    rate.report(100, 0.5)
    assert rate.token_s == pytest.approx(0.005)
    for _ in range(50):
        rate.report(10, 0.1)
    assert rate.token_s == pytest.approx(0.01, rel=0.01)


def test_a_swap_goes_there_and_back_and_a_recompute_does_the_tokens_again() -> None:
    """Blocks by the rates both ways, tokens by the fit; without room there is no swap."""
    rates = SwapRates(out_s=0.001, in_s=0.002)

    known = costs(rates, blocks=10, tokens=150, token_s=0.01, wait_s=1.0, has_room=True)

    assert (known.swap_s, known.recompute_s, known.wait_s) == pytest.approx((0.03, 1.5, 1.0))
    assert costs(rates, blocks=10, tokens=1, token_s=0.0, wait_s=1.0, has_room=False).swap_s == NEVER_S
