"""Whatever the order of events: invariants after each, the right tokens at the end, and no block lost."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.swap_cost import COST, SWAP
from tests.unit.scheduler.chaos import Chaos
from tests.unit.scheduler.moves import MOVES

# Of `drawn_from`; each failed once. More: `for seed in range(5000): drawn_from(seed)`.
FAILED_ONCE = (1098, 1129, 1171, 1210, 1307, 1325, 1372, 1649, 1842, 2656, 40324)
SUCCESSIONS = 0.03  # how many moves replace the scheduler

SWAPS = st.sampled_from(((0, COST), (3, SWAP), (16, SWAP), (16, COST)))  # blocks of the host tier, and the way taken
# Steps and messages are the usual; the rest are exceptions.
USUAL = MOVES[:4]
MOVE = st.one_of(st.sampled_from(USUAL), st.sampled_from(USUAL), st.sampled_from(USUAL), st.sampled_from(MOVES))


@pytest.mark.parametrize(("role", "prefillers"), [("hybrid", 0), ("disaggregated", 1), ("auto", 2)])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    moves=st.lists(st.tuples(MOVE, st.integers(0, 1 << 16)), min_size=20, max_size=120),
    blocks=st.sampled_from((9, 12, 20, 64)),
    decoders=st.integers(1, 2),
    step_s=st.sampled_from((0.02, 1.0, 5.0)),
    swaps=SWAPS,
)
def test_every_schedule_ends_well(
    role: str,
    prefillers: int,
    moves: list[tuple[object, int]],
    blocks: int,
    decoders: int,
    step_s: float,
    swaps: tuple[int, str],
) -> None:
    """Workers die, freeze and write on after their thaw, links break, orders get lost, schedulers are replaced.

    Each turn is audited; the engine reads every token back through the block tables, so a block that was used again too
    early, or not at all, shows in the tokens.
    """
    cell = Chaos(blocks=blocks, role=role, prefillers=prefillers, decoders=decoders, step_s=step_s, swaps=swaps)
    for move, number in moves:
        move(cell, number)  # type: ignore[operator]
        cell.alive()
    cell.finish()
    assert cell.is_clean
    assert cell.state.counts["exactness_violation"] == 0


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_schedules_with_many_successions_end_well(seed: int) -> None:
    """Several terms in a row, each of which learns from its gateways and workers what the one before it did."""
    drawn_from(seed)


def drawn_from(seed: int, swaps: tuple[int, str] = (0, COST)) -> Chaos:
    random = Random(seed)
    role, prefillers = random.choice([("hybrid", 0), ("disaggregated", 1), ("auto", 2)])
    blocks, decoders, step_s = random.choice((9, 12, 20, 64)), random.choice((1, 2)), random.choice((0.02, 1.0, 5.0))
    cell = Chaos(blocks=blocks, role=role, prefillers=prefillers, decoders=decoders, step_s=step_s, swaps=swaps)
    for _ in range(random.randint(20, 200)):
        move = random.choice(USUAL) if random.random() < 0.75 else random.choice(MOVES)
        if random.random() < SUCCESSIONS:
            move = Chaos.succeed
        move(cell, random.randrange(1 << 16))
        cell.alive()
    cell.finish()
    assert cell.is_clean and cell.state.counts["exactness_violation"] == 0
    return cell
