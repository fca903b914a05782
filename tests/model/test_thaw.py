"""A schedule that matters enough to be told: a worker thaws after its work has moved, writes, and speaks."""

from tests.model.checks import check, finish
from tests.model.demand import SAMPLINGS
from tests.model.world import World

LONG = next(index for index, params in enumerate(SAMPLINGS) if params.max_tokens == 100)


def test_a_worker_that_thaws_is_not_heard() -> None:
    """Its tokens are wrong on purpose: the gateway drops them, and nobody reads what it writes."""
    world = World(blocks=64, role="hybrid", prefillers=0, decoders=2)
    world.flow(0.3)
    number = next(number for number in range(1000) if _is_long(world, number))
    world.submit(number)
    world.flow(0.5)
    try:
        for _ in range(2):
            world.haunt(0)
            check(world)
        assert world.gateways[0].metrics.stale_rows._value.get() == 2
        finish(world)
        assert [call.outcome for call in world.calls.values()] == ["done"]
    finally:
        world.close()


def _is_long(world: World, number: int) -> bool:
    call = world.demand.call("", number)
    return call.params is SAMPLINGS[LONG] and not call.stops and len(call.answers) == 1
