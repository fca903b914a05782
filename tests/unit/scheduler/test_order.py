"""The wait queue: priority, deadline, fair share, arrival; and who waits for another's prefix is passed over."""

import math
from typing import Any

import pytest

from libs.contracts.messages import SamplingParams, Sequence
from services.scheduler.choice import Choice
from services.scheduler.order import WaitQueue, rank
from services.scheduler.prefix import Awaited, Key, Run
from services.scheduler.reasons import Reason

LEAD_TOKENS = 100


def waiting(handle: int, tenant: str = "t", *, priority: int = 0, due_s: float = math.inf, **state: Any) -> Choice:
    """A choice with a deadline of its own unless that is infinite."""
    is_timed = due_s < math.inf
    deadline_unix_ms = int(due_s * 1000) if is_timed else 0
    sequence = Sequence(
        f"r{handle}", 1, "g", "m", tenant, (1,), (), SamplingParams(), 1, deadline_unix_ms, priority, is_timed
    )
    return Choice(handle, sequence, "", [1], sequence.params, 0.0, 1, **state)


def awaited() -> Awaited:
    return Awaited(Run(Key("t"), None, 0, owner=9), 1)


def queued(*choices: Choice) -> WaitQueue:
    queue = WaitQueue(lead_tokens=LEAD_TOKENS)
    for choice in choices:
        queue.push(choice)
    return queue


def served(queue: WaitQueue, tokens: int = 0) -> list[int]:
    """Everybody who waits, in the order of their turns; each costs its tenant so many tokens."""
    handles = []
    while (choice := queue.head()) is not None:
        queue.remove(choice)
        choice.share.prefilled(tokens)
        handles.append(choice.handle)
    return handles


def test_the_oldest_comes_first_also_when_it_comes_back() -> None:
    """A preempted choice stands before everybody who arrived after it."""
    assert served(queued(*map(waiting, (2, 3, 1)))) == [1, 2, 3]


def test_an_earlier_class_goes_first_whoever_came_before() -> None:
    """The lower the number the earlier, with fair share and deadlines within a class alone."""
    queue = queued(waiting(1, "a", priority=5), waiting(2, "b", priority=5, due_s=1), waiting(3, "a", priority=-1))
    assert served(queue) == [3, 2, 1]
    queue.push(waiting(4, priority=7))
    queue.push(waiting(5))
    assert served(queue) == [5, 4]


def test_the_earliest_deadline_goes_first_in_its_class() -> None:
    """Across tenants, and before all who have none."""
    queue = queued(waiting(1), waiting(2, due_s=30), waiting(3, "u", due_s=20), waiting(4, "u", due_s=25))
    assert served(queue) == [3, 4, 2, 1]


def test_a_deadline_does_not_help_a_tenant_that_is_far_ahead() -> None:
    """Else a flood with deadlines would be served before all others; among its own it still counts."""
    flood = [waiting(handle, "flood", due_s=40 - handle) for handle in range(1, 5)]
    queue = queued(*flood, waiting(9, "other"))
    flood[0].share.prefilled(LEAD_TOKENS)
    head = queue.head()
    assert head is flood[3]
    flood[0].share.prefilled(1)
    assert served(queue) == [9, 4, 3, 2, 1]


def test_tenants_take_turns_by_what_they_were_served() -> None:
    """A flood waits behind its own requests, not the others behind it."""
    flood = [waiting(handle, "flood") for handle in range(1, 7)]
    assert served(queued(*flood, waiting(7, "a"), waiting(8, "b"), waiting(9, "a")), tokens=10) == [
        *(1, 7, 8),
        *(2, 9, 3),
        *(4, 5, 6),
    ]


def test_long_requests_cost_turns() -> None:
    """What counts is tokens: of a tenant whose requests are five times as long, one in five goes."""
    queue = queued(
        *(waiting(handle, "long") for handle in (1, 3)), *(waiting(handle, "short") for handle in range(4, 10))
    )
    order = []
    while (choice := queue.head()) is not None:
        queue.remove(choice)
        choice.share.prefilled(50 if choice.share.tenant == "long" else 10)
        order.append(choice.share.tenant)
    assert order == ["long", *["short"] * 5, "long", "short"]


def test_idle_time_is_not_saved_up() -> None:
    """Who comes to wait is lifted to the least served of those who do, or of who did last."""
    queue = queued(waiting(1, "busy"))
    busy = queue.head()
    assert busy is not None
    queue.remove(busy)
    busy.share.prefilled(1000)
    late = waiting(2, "late")
    queue.push(late)
    assert late.share.served == 1000
    late.share.prefilled(7)
    third = waiting(3, "third")
    queue.push(third)
    assert third.share.served == 1007


def test_a_generated_token_counts_twice_one_of_a_prompt() -> None:
    """The weights of the paper."""
    choice = waiting(1)
    queued(choice)
    choice.share.prefilled(10)
    choice.share.generated(10)
    assert choice.share.served == 30


def test_who_was_admitted_before_comes_back_first_in_its_class() -> None:
    """It was paid for; an earlier class still goes before it."""
    back = waiting(5, "flood", cached_tokens=0)
    queue = queued(waiting(1, "a"), waiting(2, "a", due_s=5), back, waiting(6, priority=-1))
    back.share.prefilled(10 * LEAD_TOKENS)
    assert served(queue) == [6, 5, 2, 1]


def test_a_suspect_goes_before_everybody() -> None:
    """It gives its worker back after a step or two."""
    assert served(queued(waiting(1, priority=-5), waiting(2, priority=9, deaths=2))) == [2, 1]


def test_a_parked_choice_is_passed_over_until_it_is_woken() -> None:
    """Then it stands where it stood before, in whatever class and for whatever reason."""
    for first in (waiting(1), waiting(3, priority=-1), waiting(3, due_s=1), waiting(3, deaths=2)):
        queue, pending = queued(first, waiting(2)), awaited()
        queue.park(first, pending)
        assert (queue.head() or first).handle == 2
        queue.wake(list(pending.run.waiters))
        assert queue.head() is first


def test_a_parked_choice_that_gives_up_is_not_woken() -> None:
    """What it waited for forgets it, and so does the queue."""
    choice, pending = waiting(1), awaited()
    queue = queued(choice)
    queue.park(choice, pending)
    queue.remove(choice)
    assert (pending.run.waiters, len(queue), queue.head()) == ({}, 0, None)


@pytest.mark.parametrize(
    ("head", "behind", "reason"),
    [
        (waiting(1), waiting(2), Reason.BEHIND_OLDER),
        (waiting(2, priority=-1), waiting(1), Reason.BEHIND_PRIORITY),
        (waiting(2, due_s=9), waiting(1), Reason.BEHIND_DEADLINE),
        (waiting(2, due_s=9), waiting(1, due_s=10), Reason.BEHIND_DEADLINE),
        (waiting(2, cached_tokens=0), waiting(1), Reason.BEHIND_OLDER),
    ],
)
def test_who_waits_is_told_what_goes_before_it(head: Choice, behind: Choice, reason: Reason) -> None:
    """Once: there is nothing to tell again while nothing moves."""
    queue = queued(behind, head)
    assert queue.take_misplaced() == [(behind, reason)]
    assert queue.take_misplaced() == []


def test_the_share_of_its_tenant_is_what_its_next_one_waits_for() -> None:
    """Those behind it wait for older ones; when it goes, the next is told."""
    flood = [waiting(handle, "flood") for handle in (1, 2, 3)]
    queue = queued(*flood)
    assert queue.take_misplaced() == [(flood[1], Reason.BEHIND_OLDER), (flood[2], Reason.BEHIND_OLDER)]
    queue.remove(flood[0])
    queue.push(waiting(4, "other"))
    flood[0].share.prefilled(10)
    assert queue.take_misplaced() == [(flood[1], Reason.BEHIND_SHARE)]


def test_an_overtaken_head_is_told_why() -> None:
    """Whatever it waited for as the first, now it waits for somebody."""
    first = waiting(1)
    first.explain(Reason.NO_BLOCKS, 0.0)
    queue = queued(first)
    assert queue.take_misplaced() == []
    queue.push(waiting(2, priority=-3))
    assert queue.take_misplaced() == [(first, Reason.BEHIND_PRIORITY)]


def test_running_choices_keep_their_memory_by_class_and_age() -> None:
    """That order never changes, whatever was served."""
    flood, other, timed, early = waiting(1, "f"), waiting(2, "o"), waiting(3, "f", due_s=9), waiting(4, priority=-1)
    queued(flood, other, timed, early)
    flood.share.prefilled(10)
    assert [choice.handle for choice in sorted((flood, other, timed, early), key=rank)] == [4, 1, 2, 3]


def test_the_queue_forgets_who_has_gone() -> None:
    """Classes that empty and fill again, and cancels in the middle, leave nothing behind that is looked at."""
    queue = WaitQueue()
    for round_ in range(50):
        choices = [waiting(10 * round_ + n, f"t{n % 3}", priority=n % 2, due_s=n or math.inf) for n in range(6)]
        for choice in choices:
            queue.push(choice)
        for choice in choices[::2]:
            queue.remove(choice)
            queue.remove(choice)
        assert len(served(queue)) == 3 and len(queue) == 0
