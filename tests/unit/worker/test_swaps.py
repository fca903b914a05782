"""Swap items: what of a sequence travels to the host tier, and how it goes on from there."""

from libs.contracts.messages import Chunk, Swap
from tests.fakes.engine import expected
from tests.unit.worker.orders import PARAMS, Stepper, ids_of, prompt, resident

PROMPT = prompt(20)


def swapped_out(stepper: Stepper) -> tuple[tuple[int, ...], int]:
    """A resident decodes for a few steps and leaves for host blocks 7, 8, 9: its ids, and its cursor."""
    result = stepper.order(added=[resident(1, PROMPT, (3, 4, 5))], chunks=[Chunk(1, 20)])
    assert result is not None
    rows = [*result.rows]
    for _ in range(3):
        step = stepper.step()
        assert step is not None
        rows += step.rows
    left = stepper.order(removed=[1], swap_outs=(Swap(1, (3, 4, 5), (7, 8, 9)),))
    assert left is not None and left.rows == ()
    assert [(done.sequence, done.inward, done.blocks) for done in left.swapped] == [(1, False, 2)]
    return (*PROMPT, *ids_of(rows)), left.removed[0].cursor


def test_what_is_committed_travels_and_the_sequence_goes_on_in_other_blocks() -> None:
    """The third block of its table holds nothing yet, and stays. The same tokens follow."""
    stepper = Stepper()
    ids, cursor = swapped_out(stepper)
    stepper.pool.reset(range(10))

    back = resident(2, ids, (20, 21, 22), prompt_tokens=20, cursor=cursor)
    result = stepper.order(added=[back], swap_ins=(Swap(2, (20, 21), (7, 8)),))

    assert result is not None
    assert [(done.sequence, done.inward, done.blocks) for done in result.swapped] == [(2, True, 2)]
    rows = [*result.rows, *stepper.run()]
    assert (*ids[20:], *ids_of(rows, 2)) == expected(PROMPT, PARAMS)[0]


def test_a_block_that_never_travelled_is_not_read() -> None:
    """Its fill count tells: the row waits and says why, instead of computing on what lies there."""
    stepper = Stepper()
    ids, cursor = swapped_out(stepper)

    back = resident(2, ids, (20, 21, 22), prompt_tokens=20, cursor=cursor)
    result = stepper.order(added=[back], swap_ins=(Swap(2, (20, 21), (7, 30)),))

    assert result is not None and result.rows == ()
    assert [wait.reason for wait in result.waits] == ["fill_behind"]


def test_blocks_of_nobody_travel_whole() -> None:
    """Cached blocks have no cursor; a sequence that is not there has nothing to copy."""
    stepper = Stepper()
    swapped_out(stepper)

    result = stepper.order(swap_outs=(Swap(0, (3, 4), (1, 2)), Swap(99, (3,), (4,))))

    assert result is not None
    assert [(done.sequence, done.blocks) for done in result.swapped] == [(0, 2), (99, 0)]
