"""The prefix index against a real Valkey: what it knows, who may do what, and that its absence costs little."""

import signal
import time
from contextlib import AbstractAsyncContextManager

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from libs.contracts.errors import Unavailable
from libs.runtime.prefix_index import BATCH_BLOCKS, PrefixIndex
from libs.runtime.prefix_library import LIBRARY
from libs.runtime.valkey import load_libraries
from tests.integration.servers import ValkeyServer

pytestmark = pytest.mark.integration

BLOCKS = [index.to_bytes(16, "big") for index in range(BATCH_BLOCKS + 10)]


def connect(server: ValkeyServer, user: str) -> AbstractAsyncContextManager[PrefixIndex]:
    return PrefixIndex.connect(server.url, user=user, password=server.passwords[user])


async def test_a_lookup_counts_leading_blocks_per_cell(valkey_server: ValkeyServer) -> None:
    """A hole ends a cell's prefix whatever comes after it; a cell without the first block is left out."""
    async with connect(valkey_server, "scheduler") as writer, connect(valkey_server, "tokenizer") as reader:
        await writer.apply("c0", 1, BLOCKS[:4], [])
        await writer.apply("c1", 1, [*BLOCKS[:2], *BLOCKS[3:6]], [])
        await writer.apply("c2", 1, BLOCKS[1:6], [])

        assert await reader.lookup(BLOCKS[:6]) == {"c0": 4, "c1": 2}
        assert await reader.lookup(BLOCKS[50:52]) == {}
        assert await reader.lookup([]) == {}
        assert not writer.counts and not reader.counts


async def test_evicted_blocks_are_forgotten(valkey_server: ValkeyServer) -> None:
    """Only in the cell that evicted them; storing again brings them back."""
    async with connect(valkey_server, "scheduler") as writer, connect(valkey_server, "tokenizer") as reader:
        await writer.apply("c0", 1, BLOCKS[:3], [])
        await writer.apply("c1", 1, BLOCKS[:3], [])

        await writer.apply("c0", 1, [], BLOCKS[1:3])
        assert await reader.lookup(BLOCKS[:3]) == {"c0": 1, "c1": 3}

        await writer.apply("c0", 1, BLOCKS[1:2], [])
        assert await reader.lookup(BLOCKS[:3]) == {"c0": 2, "c1": 3}


async def test_a_new_term_voids_what_older_ones_stored(valkey_server: ValkeyServer) -> None:
    """The first word of a new term empties its cell; a stale scheduler then changes nothing."""
    async with connect(valkey_server, "scheduler") as writer, connect(valkey_server, "tokenizer") as reader:
        await writer.apply("c0", 1, BLOCKS[:5], [])
        await writer.apply("c0", 2, BLOCKS[:2], [])
        assert await reader.lookup(BLOCKS[:5]) == {"c0": 2}

        await writer.apply("c0", 1, BLOCKS[2:5], BLOCKS[:1])
        assert await reader.lookup(BLOCKS[:5]) == {"c0": 2}


async def test_more_blocks_than_one_batch_are_all_stored(valkey_server: ValkeyServer) -> None:
    """A long prompt's blocks go out in several calls and are found by one."""
    async with connect(valkey_server, "scheduler") as writer, connect(valkey_server, "tokenizer") as reader:
        await writer.apply("c0", 1, BLOCKS, [])

        assert await reader.lookup(BLOCKS) == {"c0": len(BLOCKS)}


@pytest.mark.parametrize("user", ["tokenizer", "scheduler"])
@pytest.mark.parametrize(
    "command",
    ["FLUSHALL", "KEYS *", "CONFIG GET *", "EVAL return 0", "GET other", "DEL hr:p:00", "FUNCTION LIST", "ACL LIST"],
)
async def test_a_user_may_run_its_function_and_little_else(
    valkey_server: ValkeyServer, user: str, command: str
) -> None:
    """Administration, scripts and foreign keys are refused."""
    async with Redis.from_url(
        valkey_server.url, username=user, password=valkey_server.passwords[user], protocol=2, driver_info=None
    ) as client:
        with pytest.raises(NoPermissionError):
            await client.execute_command(*command.split(), *([0] if command.startswith("EVAL") else []))  # type: ignore[no-untyped-call]


async def test_a_tokenizer_may_not_write(valkey_server: ValkeyServer) -> None:
    """Its apply is refused and counted, and the index is unchanged."""
    async with connect(valkey_server, "scheduler") as writer, connect(valkey_server, "tokenizer") as reader:
        await writer.apply("c0", 1, BLOCKS[:1], [])

        await reader.apply("c0", 9, [], BLOCKS[:1])

        assert reader.counts["failed"] == 1
        assert await reader.lookup(BLOCKS[:1]) == {"c0": 1}


async def test_nobody_comes_in_without_a_password(valkey_server: ValkeyServer) -> None:
    """The default user is off."""
    async with Redis.from_url(valkey_server.url, protocol=2, driver_info=None) as client:
        with pytest.raises(AuthenticationError):
            await client.execute_command("FCALL_RO", "hr_lookup", 1, "hr:p:00")  # type: ignore[no-untyped-call]


async def test_an_index_that_went_away_is_not_waited_for(valkey_server: ValkeyServer) -> None:
    """Lookups know nothing, quickly; after a few failures nothing is even asked."""
    async with connect(valkey_server, "tokenizer") as reader:
        valkey_server.stop()

        for _ in range(5):
            assert await reader.lookup(BLOCKS[:1]) == {}

        assert (reader.counts["failed"], reader.counts["skipped"]) == (3, 2)


async def test_a_frozen_index_costs_at_most_its_time_limit(valkey_server: ValkeyServer) -> None:
    """A lookup that gets no answer gives up after 50 ms; thawed, the index is used again."""
    async with connect(valkey_server, "scheduler") as writer, connect(valkey_server, "tokenizer") as reader:
        await writer.apply("c0", 1, BLOCKS[:1], [])
        assert await reader.lookup(BLOCKS[:1]) == {"c0": 1}
        valkey_server.signal(signal.SIGSTOP)
        started_s = time.monotonic()

        assert await reader.lookup(BLOCKS[:1]) == {}

        assert time.monotonic() - started_s < 1
        valkey_server.signal(signal.SIGCONT)
        assert await reader.lookup(BLOCKS[:1]) == {"c0": 1}


async def test_no_index_at_all_is_fine() -> None:
    """An empty address is a service without an index."""
    async with PrefixIndex.connect("", user="", password="") as index:
        assert await index.lookup(BLOCKS) == {}
        await index.apply("c0", 1, BLOCKS, [])


async def test_loading_the_library_needs_the_right_user(valkey_server: ValkeyServer) -> None:
    """A tokenizer cannot replace the function that everybody runs."""
    with pytest.raises(Unavailable):
        await load_libraries(
            valkey_server.url, LIBRARY, user="tokenizer", password=valkey_server.passwords["tokenizer"]
        )
