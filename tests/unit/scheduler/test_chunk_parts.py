"""Who gets how many of a chunk's prompt tokens."""

import math

from services.scheduler.choice import Choice
from services.scheduler.chunk_parts import parts
from services.scheduler.fair_queue import LEAD_TOKENS
from tests.unit.scheduler.test_order import queued, waiting


def wanting(handle: int, tokens: int, tenant: str = "t", *, priority: int = 0, due_s: float = math.inf) -> Choice:
    choice = waiting(handle, tenant, priority=priority, due_s=due_s)
    choice.ids = [1] * tokens
    return choice


def given(budget: int, *choices: Choice) -> dict[int, int]:
    """Tokens by handle."""
    queued(*choices)
    return {choice.handle: tokens for choice, tokens in parts(choices, budget).items()}


def test_the_oldest_of_a_tenant_takes_what_it_can() -> None:
    """First come, first served, as far as it goes; who gets nothing is not named."""
    assert given(100, wanting(3, 50), wanting(1, 80), wanting(2, 90)) == {1: 80, 2: 20}


def test_tenants_get_even_parts_whatever_they_hold() -> None:
    """A flood of long prompts does not keep a short one of another tenant waiting, nor is anything left over."""
    flood = [wanting(handle, 600, "flood") for handle in range(1, 9)]
    flood[0].share.prefilled(0)
    assert given(512, *flood, wanting(9, 24, "quiet")) == {9: 24, 1: 488}
    assert given(100, wanting(1, 600, "a"), wanting(2, 600, "b"), wanting(3, 10, "c")) == {3: 10, 1: 45, 2: 45}
    assert given(2, *(wanting(handle, 9, f"t{handle}") for handle in (1, 2, 3))) == {1: 1, 2: 1}


def test_an_earlier_class_and_an_earlier_deadline_take_all_they_want() -> None:
    """What they leave goes to the others."""
    usual, timed, early = wanting(1, 99, "a"), wanting(2, 60, "b", due_s=9.0), wanting(3, 30, "c", priority=-1)
    assert given(100, usual, timed, early) == {3: 30, 2: 60, 1: 10}


def test_a_deadline_takes_no_tokens_for_who_is_far_ahead() -> None:
    """As in the queue."""
    timed, usual = wanting(1, 80, "a", due_s=5.0), wanting(2, 80, "b")
    queued(timed, usual)
    timed.share.prefilled(LEAD_TOKENS + 1)
    assert list(parts([timed, usual], 100).values()) == [50, 50]
