"""All that may happen in a Chaos: the first four are the usual, the rest exceptions."""

from collections.abc import Callable

from tests.unit.scheduler.chaos import Chaos

MOVES: tuple[Callable[[Chaos, int], None], ...] = (
    Chaos.request,
    Chaos.work,
    Chaos.hear,
    Chaos.obey,
    Chaos.again,
    Chaos.drop,
    Chaos.stop,
    Chaos.deliver_one,
    Chaos.drop_order,
    Chaos.relink,
    Chaos.kill,
    Chaos.freeze,
    Chaos.thaw,
    Chaos.lapse,
    Chaos.bury,
    Chaos.haunt,
    Chaos.reply,
    Chaos.succeed,
)
