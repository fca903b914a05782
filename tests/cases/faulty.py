"""What cases of bad hashes and bad connections are played on: real services and brokers around a fake engine.

The fake engine draws each token by the ids that it reads from the blocks it was given (tests/fakes/engine.py), so an
answer is right only if every block was.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from tests.integration.pipeline import Answer, Pipeline, greedy, pipeline

PROMPT_BLOCKS, BLOCK_TOKENS = 2, 16
PROMPT_TOKENS = PROMPT_BLOCKS * BLOCK_TOKENS
POOL_BLOCKS = 1024  # the blocks of all prompts stay
SHORT_HASHES = 256  # of eight bits
USAGE = {"include_usage": True}
PER_S, TOKENS = 5, 20
AWAY_S, BACK_WITHIN_S, REFUSED_WITHIN_S = 10.0, 15.0, 6.0


async def collide(folder: Path, prompts: int) -> None:
    """So many two-block prompts, then again, where hashes of blocks have eight bits: all are answered right.

    The first time nothing is found, the second time all of each, though the index knows fewer hashes than blocks.
    """
    async with pipeline(folder, modules={"tokenizer": "tests.fakes.short_hashes"}) as running:
        running.start_worker(step_s=0.0, blocks=POOL_BLOCKS)
        await running.ready()
        for found_tokens in (0, PROMPT_TOKENS - 1):
            for number in range(prompts):
                ids = [number + 10, *range(500, 499 + PROMPT_TOKENS)]  # all but the first are those of the others
                answer = await running.ask(ids, 4, stream_options=USAGE)
                assert (answer.status, answer.ids, answer.cached_tokens) == (200, greedy(ids, 4), found_tokens)
        assert 1 < await _keys(running) <= min(SHORT_HASHES, PROMPT_BLOCKS * prompts - 1) + 1


async def _keys(running: Pipeline) -> int:
    """Of the index: one for each hash, and that of the cell's term."""
    user = "supervisor"
    options: dict[str, Any] = {
        "username": user,
        "password": running.valkey.passwords[user],
        "protocol": 2,
        "driver_info": None,
    }
    async with Redis.from_url(running.valkey.url, **options) as client:
        told = await client.info("keyspace")
    return int(told["db0"]["keys"])


async def outages(folder: Path) -> None:
    """The broker, the index, and the link to the worker are away for ten seconds each, under load."""
    async with pipeline(folder) as running:
        running.start_worker()
        await running.ready()
        services, link = dict(running.processes), running.to_scheduler
        await _outage(running, running.nats.stop, running.nats.start, refuses=True)
        await _outage(running, running.valkey.stop, running.valkey.start, refuses=False)
        await _outage(running, link.silence, link.heal, refuses=False)
        assert running.processes == services and {process.poll() for process in services.values()} == {None}


async def _outage(running: Pipeline, stop: Callable[[], object], start: Callable[[], object], *, refuses: bool) -> None:
    """Whoever asks meanwhile is answered right, or soon refused; soon after nobody is, and nothing is left."""
    load = Load(running)
    async with load.going_on():
        await load.answered()
        await asyncio.to_thread(stop)
        await asyncio.sleep(AWAY_S)
        await asyncio.to_thread(start)
        async with asyncio.timeout(BACK_WITHIN_S):
            await load.answered()
    refused = [answer for answer in load.answers if answer.status == 503]
    assert bool(refused) == refuses
    for answer in refused:
        assert answer.error["code"] == "unavailable" and answer.ended_s - answer.started_s < REFUSED_WITHIN_S
    await running.quiet()
    assert await running.gauges() == {"running": 0.0, "waiting": 0.0}


class Load:
    """Requests at an even pace, none of which waits for another's answer."""

    def __init__(self, running: Pipeline) -> None:
        self.answers: list[Answer] = []
        self._running = running

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Until the block ends; each is then answered, and right or refused."""
        async with asyncio.TaskGroup() as asked:
            asking = asked.create_task(self._ask_on(asked))
            yield
            asking.cancel()

    async def answered(self) -> None:
        """Until a request that was asked from now on has been."""
        first = len(self.answers)
        while not any(answer.status == 200 and answer.finish for answer in self.answers[first:]):
            await asyncio.sleep(0.05)

    async def _ask_on(self, asked: asyncio.TaskGroup) -> None:
        while True:
            asked.create_task(self._ask(Answer()))
            await asyncio.sleep(1 / PER_S)

    async def _ask(self, answer: Answer) -> None:
        """The answer's tokens are those of its own prompt, each once."""
        self.answers.append(answer)
        ids = range(len(self.answers), len(self.answers) + PROMPT_TOKENS)
        await self._running.ask(ids, TOKENS, seen=answer)
        if answer.status != 503:
            outcome = (answer.status, answer.error, answer.broken, answer.finish, answer.ids)
            assert outcome == (200, {}, False, "length", greedy(ids, TOKENS))
