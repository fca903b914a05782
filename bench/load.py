"""Runs one scenario against one target and keeps what every request got."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.client import Reply, Target, complete
from bench.scenarios import Job, Late, Scenario, jobs


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a scenario. `late` is the reply of the request that came late, which `replies` does not hold."""

    replies: tuple[Reply, ...]
    late: Reply | None
    wall_s: float
    client_cpu_s: float  # what the load generator itself used of the cores that it shares with the server


async def run_scenario(target: Target, scenario: Scenario, vocab_size: int, seed: int) -> Outcome:
    """All requests of the scenario. Raises BenchError when one of them fails."""
    todo = jobs(scenario, vocab_size, seed)
    late_job = todo.pop() if scenario.late else None
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    late: Reply | None = None
    try:
        if scenario.poisson:
            replies = await _at_their_times(target, todo)
        elif scenario.late and late_job:
            *replies, late = await _with_late(target, todo, scenario.late, late_job)
        else:
            replies = await _places(target, iter(todo), scenario.concurrency)
    except ExceptionGroup as failed:  # the first tells the cause, the others were cancelled with it
        raise failed.exceptions[0] from None
    return Outcome(tuple(replies), late, time.perf_counter() - started_s, round(time.process_time() - started_cpu_s, 4))


async def _places(target: Target, todo: Iterator[Job], concurrency: int) -> list[Reply]:
    """Each place sends its next request when the one before has its answer."""
    replies: list[Reply] = []

    async def place() -> None:
        for job in todo:
            replies.append(await complete(target, job))

    async with asyncio.TaskGroup() as places:
        for _ in range(concurrency):
            places.create_task(place())
    return replies


async def _at_their_times(target: Target, todo: list[Job]) -> list[Reply]:
    """However busy the server is: an open loop."""

    async def send(job: Job) -> Reply:
        await asyncio.sleep(job.at_s)
        return await complete(target, job)

    async with asyncio.TaskGroup() as sent:
        tasks = [sent.create_task(send(job)) for job in todo]
    return [task.result() for task in tasks]


async def _with_late(target: Target, todo: list[Job], late: Late, late_job: Job) -> list[Reply]:
    """All at once, and the late one when each of them has given enough tokens; its reply is the last."""
    behind, all_there = set(range(len(todo))), asyncio.Event()

    def count(stream: int, tokens: int) -> None:
        if tokens >= late.after_tokens:
            behind.discard(stream)
            if not behind:
                all_there.set()

    async def follow() -> Reply:
        await all_there.wait()
        return await complete(target, late_job)

    async with asyncio.TaskGroup() as sent:
        tasks = [
            sent.create_task(complete(target, job, lambda tokens, stream=n: count(stream, tokens)))  # type: ignore[misc]
            for n, job in enumerate(todo)
        ]
        tasks.append(sent.create_task(follow()))
    return [task.result() for task in tasks]
