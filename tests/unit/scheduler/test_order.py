"""The wait queue: first come, first served, except for who waits for another's prefix."""

from libs.contracts.messages import SamplingParams, Sequence
from services.scheduler.choice import Choice
from services.scheduler.order import WaitQueue
from services.scheduler.prefix import Awaited, Key, Run


def waiting(handle: int) -> Choice:
    sequence = Sequence(f"r{handle}", 1, "g", "m", "t", (1,), (), SamplingParams(), 1, 0)
    return Choice(handle, sequence, "", [1], sequence.params, 0.0, 1)


def awaited() -> Awaited:
    return Awaited(Run(Key("t"), None, 0, owner=9), 1)


def drained(queue: WaitQueue) -> list[int]:
    handles = []
    while (choice := queue.head()) is not None:
        queue.remove(choice)
        handles.append(choice.handle)
    return handles


def test_the_oldest_comes_first_also_when_it_comes_back() -> None:
    """A preempted choice stands before everybody who arrived after it."""
    queue = WaitQueue()
    for handle in (2, 3, 1):
        queue.push(waiting(handle))
    assert drained(queue) == [1, 2, 3]


def test_a_parked_choice_is_passed_over_until_it_is_woken() -> None:
    """Then it stands where it stood before."""
    queue, pending = WaitQueue(), awaited()
    first = waiting(1)
    queue.push(first)
    queue.push(waiting(2))
    queue.park(first, pending)
    assert (queue.head() or first).handle == 2
    queue.wake(list(pending.run.waiters))
    assert queue.head() is first


def test_a_parked_choice_that_gives_up_is_not_woken() -> None:
    """What it waited for forgets it, and so does the queue."""
    queue, pending = WaitQueue(), awaited()
    choice = waiting(1)
    queue.push(choice)
    queue.park(choice, pending)
    queue.remove(choice)
    assert (pending.run.waiters, len(queue), queue.head()) == ({}, 0, None)
