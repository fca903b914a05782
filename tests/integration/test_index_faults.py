"""The prefix index is gone, slow, full, read-only, or lies: answers are the same, and first tokens hardly later."""

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from deploy.index_functions import load_once
from libs.contracts import block_hash
from libs.contracts.errors import Unavailable
from libs.runtime.prefix_index import BLOCK_KEY, PrefixIndex
from libs.text.model_files import read_model_files
from libs.text.tokenizer import Tokenizer
from tests.fakes.engine import MODEL_DIGEST
from tests.integration.pipeline import CELL, HASH_KEY, Pipeline, greedy

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TOKENS, ROUNDS = 6, 7
BOUND_S = 0.05
PROMPT = list(range(300, 370))
BLOCK_TOKENS = 16

Fault = Callable[[Pipeline], Awaitable[None]]


async def killed(running: Pipeline) -> None:
    running.valkey.stop()


async def late(running: Pipeline) -> None:
    running.to_index.down.latency_s = 1.0


async def silent(running: Pipeline) -> None:
    running.to_index.silence()


async def broken(running: Pipeline) -> None:
    running.to_index.refuses = True
    running.to_index.reset()


async def forgetful(running: Pipeline) -> None:
    """Started anew, without its function even."""
    running.valkey.stop()
    running.valkey.start()


async def read_only(running: Pipeline) -> None:
    await restarted_with(running, "replicaof 127.0.0.1 1", "replica-serve-stale-data yes")


async def full(running: Pipeline) -> None:
    await restarted_with(running, "maxmemory 1", "maxmemory-policy noeviction")


async def lying(running: Pipeline) -> None:
    """Every block of every prompt is said to be in this cell and in one that does not exist."""
    async with index_of(running) as index:
        for cell in (CELL, "ghost"):
            await index.apply(cell, (await running.status()).term, hashes_of(running), [])


async def nonsensical(running: Pipeline) -> None:
    """The keys hold something else than they should."""
    password = running.valkey.passwords["scheduler"]
    async with Redis.from_url(
        running.valkey.url, username="scheduler", password=password, protocol=2, driver_info=None
    ) as client:
        for block in hashes_of(running):
            await client.execute_command("SET", BLOCK_KEY + block.hex(), "nonsense")  # type: ignore[no-untyped-call]


FAULTS: list[Fault] = [killed, late, silent, broken, forgetful, read_only, full, lying, nonsensical]


@pytest_asyncio.fixture(loop_scope="module")
async def mended(running: Pipeline) -> AsyncIterator[Pipeline]:
    yield running
    running.to_index.heal()
    running.valkey.stop()
    running.valkey.start()
    await load_once(running.valkey.url, running.valkey.passwords["supervisor"])


@pytest.mark.parametrize("fault", FAULTS)
async def test_answers_are_the_same_and_soon(mended: Pipeline, fault: Fault) -> None:
    """Those before the circuit opens included. What a busy machine adds is what it added before the fault.

    That no look-up waits for longer than its limit is shown in virtual time, tests/unit/runtime/test_index_patience.py.
    """
    usual_s = await first_tokens_s(mended)

    await fault(mended)

    assert statistics.median(await first_tokens_s(mended)) < max(usual_s) + BOUND_S


async def first_tokens_s(running: Pipeline) -> list[float]:
    """Waits of several requests, each of which must be right."""
    waits_s = []
    for _ in range(ROUNDS):
        answer = await running.ask(PROMPT, TOKENS)
        assert (answer.ids, answer.finish) == (greedy(PROMPT, TOKENS), "length")
        waits_s.append(answer.heard_s[0] - answer.started_s)
    return waits_s


async def restarted_with(running: Pipeline, *settings: str) -> None:
    running.valkey.stop()
    running.valkey.start(*settings)
    with suppress(Unavailable):  # such a server may not even take the function
        await load_once(running.valkey.url, running.valkey.passwords["supervisor"])


def index_of(running: Pipeline) -> AbstractAsyncContextManager[PrefixIndex]:
    return PrefixIndex.connect(running.valkey.url, user="scheduler", password=running.valkey.passwords["scheduler"])


def hashes_of(running: Pipeline) -> tuple[bytes, ...]:
    """Those that the tokenizer asks for."""
    digest = Tokenizer(read_model_files(running.folder)).digest
    key = bytes.fromhex(HASH_KEY)
    root = block_hash.root_hash(key, tenant="default", model_digest=MODEL_DIGEST, adapter="", tokenizer_digest=digest)
    return block_hash.block_hashes(key, root, PROMPT, BLOCK_TOKENS)
