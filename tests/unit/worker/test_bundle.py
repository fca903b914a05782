"""Plain decode steps travel together; nothing that the scheduler acts on waits."""

from dataclasses import replace

import pytest

from libs.contracts.messages import RowResult, RowWait, StepResult
from libs.engine.worker.bundle import LONGEST_WAIT_NS, MOST_RESULTS, Bundle

ROW = RowResult(sequence=1, epoch=1, cursor=20, position=4, ids=(9,), logprobs=(), end="", at_until=False)
PLAIN = StepResult("ab", 1, 1, 1, (ROW,), waits=(), removed=(), copies_done=0, batch_tokens=1, started_ns=0, ended_ns=0)


def plain(step_number: int, *, ended_ns: int = 0) -> StepResult:
    return replace(PLAIN, step_number=step_number, ended_ns=ended_ns)


def test_plain_steps_wait_until_there_are_enough() -> None:
    """Then all go, oldest first, and the next ones wait again."""
    bundle = Bundle()

    sent = [bundle.add(plain(n)) for n in range(1, MOST_RESULTS + 2)]

    assert sent[:-2] == [()] * (MOST_RESULTS - 1)
    assert [result.step_number for result in sent[-2]] == list(range(1, MOST_RESULTS + 1))
    assert sent[-1] == ()


def test_slow_steps_do_not_wait_for_long() -> None:
    """A result is sent at the end of the first step that ends late enough after it."""
    bundle = Bundle()

    assert bundle.add(plain(1, ended_ns=5)) == ()
    assert len(bundle.add(plain(2, ended_ns=5 + LONGEST_WAIT_NS))) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": (replace(ROW, end="stop"),)},
        {"rows": (replace(ROW, at_until=True),)},
        {"removed": (ROW,)},
        {"waits": (RowWait(1, 1, "out_of_grant", 0),)},
        {"copies_done": 1},
        {"batch_tokens": 17},
        {"rows": (), "batch_tokens": 0},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_what_the_scheduler_acts_on_goes_at_once(changes: dict[str, object]) -> None:
    """It takes along what waited before it, in order."""
    bundle = Bundle()
    bundle.add(plain(1))

    sent = bundle.add(replace(plain(2), **changes))  # type: ignore[arg-type]

    assert [result.step_number for result in sent] == [1, 2]
    assert bundle.take() == ()
