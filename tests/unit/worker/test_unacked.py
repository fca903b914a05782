"""Results are kept until the scheduler has them."""

from dataclasses import replace

from libs.contracts.messages import StepResult
from libs.engine.worker.unacked import Unacked

RESULT = StepResult("ab", 1, 1, 0, (), (), (), 0, 0, 0, 0)


def kept(*step_numbers: int) -> Unacked:
    unacked = Unacked()
    for number in step_numbers:
        unacked.keep(replace(RESULT, step_number=number))
    return unacked


def test_an_ack_forgets_everything_up_to_its_step() -> None:
    """And nothing after it."""
    unacked = kept(1, 2, 3, 4)

    unacked.ack(2)

    assert [result.step_number for result in unacked.pending()] == [3, 4]


def test_an_ack_may_repeat_come_late_or_reach_ahead() -> None:
    """Acks are idempotent."""
    unacked = kept(3, 4)

    for step_number in (3, 3, 1, 99):
        unacked.ack(step_number)

    assert unacked.pending() == ()
