"""How long anybody waits for a prefix index that does not answer. In virtual time: no machine is too busy for it."""

import asyncio
from typing import cast

from redis.asyncio import Redis

from libs.runtime.prefix_index import LOOKUP_TIMEOUT_S, PrefixIndex
from libs.runtime.valkey import BREAKER_FAILURES, Valkey
from tests.fakes.virtual_loop import VirtualLoop


class Silent:
    """A client whose server never answers."""

    async def execute_command(self, *command: object) -> object:
        return await asyncio.Event().wait()


def test_a_silent_index_costs_each_lookup_its_limit_and_after_a_few_nothing() -> None:
    """The bound on a first token: 50 ms, and none of it once the circuit is open."""

    async def waits_s() -> list[float]:
        index, loop, waits = PrefixIndex(Valkey(cast(Redis, Silent()))), asyncio.get_running_loop(), []
        for _ in range(BREAKER_FAILURES + 4):
            started_s = loop.time()
            assert await index.lookup([b"block"]) == {}
            waits.append(round(loop.time() - started_s, 6))
        return waits

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        waits = runner.run(waits_s())
    assert LOOKUP_TIMEOUT_S == 0.05
    assert waits == [LOOKUP_TIMEOUT_S] * BREAKER_FAILURES + [0.0] * 4
