"""More requests than can be served, or kept: who is refused is told so at once, and who is accepted is served."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.integration.pipeline import SOON_S, Answer, Pipeline, greedy, pipeline

pytestmark = pytest.mark.integration

TOKENS, QUEUE = 8, 4
REFUSED_S = 2.0


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Pipeline]:
    """Two requests run, about two a second; eight may wait in the gateway, more in the scheduler's queues."""
    async with pipeline(tmp_path, scheduler={"max_running": 2}, gateway={"max_waiting": 8}) as running:
        running.start_worker(step_s=0.1)
        await running.ready()
        yield running


@pytest.fixture
async def short_queues(tmp_path: Path) -> AsyncIterator[Pipeline]:
    """Each queue holds four requests."""
    async with pipeline(tmp_path, scheduler={"max_waiting": QUEUE}) as running:
        running.start_worker(step_s=0.01)
        await running.ready()
        yield running


def prompt(number: int) -> range:
    return range(100 + number, 130 + number)


def sort_out(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """The served and the refused, each as it must be; there may be no others."""
    served, refused = [], []
    for number, answer in enumerate(answers):
        if answer.status == 200:
            assert (answer.ids, answer.finish, answer.error) == (greedy(prompt(number), TOKENS), "length", {})
            served.append(answer)
            continue
        assert (answer.status, answer.error["code"], answer.error["type"]) == (429, "overloaded", "rate_limit_error")
        assert 1 <= int(answer.headers["retry-after"]) <= 120
        assert 0 < int(answer.headers["retry-after-ms"]) <= 120_000
        refused.append(answer)
    return served, refused


async def test_what_is_too_much_is_refused_at_once_and_the_rest_is_served(small: Pipeline) -> None:
    """In two waves, each three times what may wait; who comes after it finds everything as before."""
    answers: list[Answer] = []
    asked = [small.ask(prompt(number), TOKENS) for number in range(48)]
    for wave in (asked[:24], asked[24:]):
        answers += await asyncio.wait_for(asyncio.gather(*wave), 3 * SOON_S)

    served, refused = sort_out(answers)
    assert len(served) >= 2 * 8 and len(refused) >= 8
    assert len({answer.headers["retry-after-ms"] for answer in refused}) > 3, "all would come back at once"
    await small.quiet()
    after, _ = sort_out([await small.ask(prompt(0), TOKENS)])
    assert after[0].heard_s[0] - after[0].started_s < REFUSED_S


@pytest.mark.parametrize("behind", ["tokenizer", "scheduler"])
async def test_a_full_queue_refuses_and_recovers(short_queues: Pipeline, behind: str) -> None:
    """The broker keeps no more than it was told to; what it kept is served as soon as somebody takes it."""
    running = short_queues
    running.processes[behind].send_signal(signal.SIGSTOP)
    try:
        calls = [asyncio.create_task(running.ask(prompt(number), TOKENS)) for number in range(4 * QUEUE)]
        async with asyncio.timeout(SOON_S):
            while sum(call.done() for call in calls) < QUEUE:
                await asyncio.sleep(0.02)
    finally:
        running.processes[behind].send_signal(signal.SIGCONT)

    served, refused = sort_out(await asyncio.wait_for(asyncio.gather(*calls), 2 * SOON_S))
    assert len(served) >= QUEUE and len(refused) >= QUEUE
    await running.quiet()
    assert (await running.ask(prompt(0), TOKENS)).status == 200


async def test_a_request_whose_time_is_over_is_not_computed(tmp_path: Path) -> None:
    """One of three runs until then; the others leave the queue with 504, and those behind them are served."""
    async with pipeline(tmp_path, scheduler={"max_running": 1}, gateway={"request_timeout_s": 3}) as running:
        running.start_worker(step_s=0.1)  # longer than the three arrive apart
        await running.ready()

        answers = await asyncio.gather(*(running.ask(prompt(number), 3000) for number in range(3)))

        begun, *late = sorted(answers, key=lambda answer: answer.status)
        assert (begun.status, begun.error["code"]) == (200, "deadline_exceeded")
        for answer in late:
            assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
            assert answer.headers["x-should-retry"] == "false"
        await running.quiet()
        assert (await running.ask(prompt(0), TOKENS)).ids == greedy(prompt(0), TOKENS)
