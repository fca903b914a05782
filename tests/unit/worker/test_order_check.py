"""Orders that cannot be carried out never reach the engine."""

from dataclasses import replace

import pytest

from libs.contracts.errors import MalformedMessage
from libs.contracts.messages import BlockCopy, BlockGrant, Delta, Resident, Swap
from libs.engine.worker.order_check import OrderLimits
from tests.unit.worker.orders import Orders, prompt, resident

LIMITS = OrderLimits(pool_blocks=8, block_tokens=16, max_model_len=64, host_blocks=3)
SOUND = resident(1, prompt(20), [0, 7], cursor=17)


def test_a_sound_order_passes() -> None:
    """The bounds themselves are allowed."""
    orders = Orders()

    LIMITS.check(orders.snapshot(SOUND))
    LIMITS.check(
        orders.delta(grants=[BlockGrant(1, (6,))], copies=[BlockCopy(7, 0, 16)], swap_outs=(Swap(1, (7,), (2,)),))
    )


@pytest.mark.parametrize(
    "wrong",
    [
        replace(SOUND, block_table=(0, 8)),
        replace(SOUND, cursor=20),
        replace(SOUND, block_table=(0,)),
        replace(SOUND, prompt_tokens=0),
        replace(SOUND, prompt_tokens=21),
        resident(1, prompt(65), range(5)),
    ],
)
def test_a_resident_outside_its_bounds_is_refused(wrong: Resident) -> None:
    """A block outside the pool would be an access to foreign memory."""
    with pytest.raises(MalformedMessage):
        LIMITS.check(Orders().snapshot(wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        Delta(1, 2, grants=(BlockGrant(1, (1, 8)),)),
        Delta(1, 2, copies=(BlockCopy(8, 1, 3),)),
        Delta(1, 2, copies=(BlockCopy(1, 8, 3),)),
        Delta(1, 2, copies=(BlockCopy(1, 2, 17),)),
        Delta(1, 2, added=(replace(SOUND, block_table=(9, 9)),)),
        Delta(1, 2, swap_outs=(Swap(1, (8,), (0,)),)),
        Delta(1, 2, swap_outs=(Swap(1, (1,), (3,)),)),
        Delta(1, 2, swap_ins=(Swap(1, (1, 2), (0,)),)),
    ],
)
def test_items_outside_the_pool_are_refused(wrong: Delta) -> None:
    """Grants, copies and swaps name blocks, too; the host tier has its own."""
    with pytest.raises(MalformedMessage):
        LIMITS.check(wrong)
