"""Both ends of a link reach the same hash by different ways, and notice when they did not."""

import random
from dataclasses import replace

import pytest

from libs.contracts.messages import BlockGrant, Delta, Resident, SamplingParams, Until
from libs.contracts.order import StandingOrder


def resident(sequence: int, *, table: tuple[int, ...] = (1, 2), until: int = 8, epoch: int = 1) -> Resident:
    return Resident(
        sequence, f"r{sequence}", 0, epoch, "g0", (5, 6, 7), 3, 0, table, until, SamplingParams(seed=sequence), 0, ""
    )


def order(*residents: Resident, version: int = 1) -> StandingOrder:
    made = StandingOrder()
    made.reset(version, residents)
    return made


def test_deltas_lead_to_the_hash_of_the_same_snapshot() -> None:
    """Add, grant, raise and remove in steps equals being told the outcome at once."""
    stepped = order()
    stepped.apply(Delta(1, 2, added=(resident(1), resident(2))))
    stepped.apply(Delta(1, 3, grants=(BlockGrant(2, (9,)),), untils=(Until(2, 5),), removed=(1,)))

    whole = order(resident(2, table=(1, 2, 9), until=5), version=3)

    assert (stepped.hash, stepped.version) == (whole.hash, whole.version)


def test_the_hash_does_not_depend_on_the_order_of_adds() -> None:
    """Sets are equal when their members are."""
    residents = [resident(n, table=(n,)) for n in range(20)]
    shuffled = random.Random(7).sample(residents, k=20)

    assert order(*residents).hash == order(*shuffled).hash


@pytest.mark.parametrize(
    "changed",
    [{"until": 9}, {"epoch": 2}, {"block_table": (2, 1)}, {"sequence": 4}, {"params": SamplingParams(seed=99)}],
    ids=str,
)
def test_every_covered_field_changes_the_hash(changed: dict[str, object]) -> None:
    """A lost grant, a stale epoch or other parameters cannot go unseen."""
    one = resident(3)

    assert order(one).hash != order(replace(one, **changed)).hash  # type: ignore[arg-type]


@pytest.mark.parametrize("free", [{"cursor": 2}, {"ids": (5, 6, 7, 8)}, {"cached_tokens": 1}], ids=str)
def test_cursors_and_tokens_are_not_covered(free: dict[str, object]) -> None:
    """They move on at the worker between versions."""
    one = resident(3)

    assert order(one).hash == order(replace(one, **free)).hash  # type: ignore[arg-type]


def test_a_delta_on_an_unknown_sequence_is_an_error() -> None:
    """The worker answers it by Resync."""
    with pytest.raises(KeyError):
        order().apply(Delta(1, 2, removed=(77,)))
