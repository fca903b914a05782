"""The load under which processes are killed: sixteen streams of the real model whose tokens are known beforehand."""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from libs.contracts.messages import SamplingParams
from tests.chaos.checker import check
from tests.chaos.client import perform
from tests.chaos.history import Answer, History, Operation, Quiet
from tests.e2e.conftest import Stack
from tests.golden import golden_prompts, sampled_requests

SHORT_TOKENS = 100  # prompts up to this: what is measured is decoding
GREEDY = 8
STOPPED = 2
STOP_AT = 40  # characters into the text that the undisturbed run gave
ANSWER_S = 60.0
BROKERS = ("nats", "valkey")
FOLDER = Path(os.environ.get("HR_HISTORIES", "build/histories"))


@dataclass(frozen=True, slots=True)
class Request:
    """`more` are the fields of its body beside prompt, seed, temperature and lengths."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    ids: tuple[int, ...] | None = None  # by the reference library
    stop: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)


def requests() -> list[Request]:
    """Greedy and sampled ones with ids of the reference library, wide from any other choice at each step."""
    chosen = [prompt for prompt in golden_prompts() if len(prompt.prompt_ids) < SHORT_TOKENS][:GREEDY]
    greedy = [
        Request(
            tuple(prompt.prompt_ids),
            SamplingParams(temperature=0, max_tokens=len(prompt.output_ids), ignore_eos=True),
            tuple(prompt.output_ids),
        )
        for prompt in chosen
    ]
    sampled = []
    for sample in sampled_requests():
        body = dict(sample.body)
        params = SamplingParams(
            temperature=body.pop("temperature"),
            seed=body.pop("seed"),
            max_tokens=body.pop("max_tokens"),
            ignore_eos=True,
        )
        ids = tuple(sample.output_ids)
        sampled.append(Request(tuple(body.pop("prompt")), params, ids, more=body))
    return greedy + sampled


async def undisturbed(stack: Stack) -> tuple[list[Request], list[Answer]]:
    """All requests, two more that a stop string ends, and what the stack answers when nobody is killed."""
    load = requests()
    answers = await _answers(stack, load)
    stopped = [
        Request(each.prompt_ids, each.params, stop=(answer.text[STOP_AT : STOP_AT + 6],))
        for each, answer in zip(load[:STOPPED], answers[:STOPPED], strict=True)
    ]
    return load + stopped, answers + await _answers(stack, stopped)


async def disturbed(stack: Stack, name: str, load: Sequence[Request], answers: Sequence[Answer]) -> History:
    """Kill a process of `name` at a random moment of all streams. Fails unless every answer is the undisturbed one."""
    seed = random.SystemRandom().randrange(1 << 30)
    rng, history = random.Random(seed), History(f"survival/{stack.options['role']}-kill-{name}/{seed}")
    streams = _start(stack, load, history)
    moment = rng.randint(len(load) * 3, sum(len(answer.ids) for answer in answers) // 2)
    while sum(len(operation.ids) for operation in history.operations) < moment:
        assert not all(stream.done() for stream in streams), [each.error for each in history.operations]
        await asyncio.sleep(0.005)
    before = stack.status()["recomputed_tokens"]
    history.plant(f"kill {name} after {moment} tokens", time.monotonic())
    victim(stack, name, rng).kill()
    await asyncio.gather(*streams)
    await _rest(stack, history)
    history.tokens_recomputed = max(0, stack.status()["recomputed_tokens"] - before)
    print(f"{history.name}: longest stall {stall_s(history):.2f} s, {history.tokens_recomputed} tokens recomputed")
    history.save(FOLDER)
    known = {operation.number: answer for operation, answer in zip(history.operations, answers, strict=True)}
    assert check(history, lambda operation: known[operation.number]) == []
    return history


def victim(stack: Stack, name: str, rng: random.Random) -> Any:
    found = stack.processes(name) if name not in BROKERS else stack.program(name)
    return rng.choice(found)


def stall_s(history: History) -> float:
    """The longest wait between two events of one stream."""
    return max(
        after.at_s - before.at_s for operation in history.operations for before, after in pairwise(operation.parts)
    )


async def _answers(stack: Stack, load: Sequence[Request]) -> list[Answer]:
    history = History("undisturbed")
    await asyncio.gather(*_start(stack, load, history))
    for operation, request in zip(history.operations, load, strict=True):
        assert operation.outcome == "ok", operation.error
        assert request.ids is None or operation.ids == request.ids
    return [Answer(each.ids, each.finish_reason, each.text) for each in history.operations]


def _start(stack: Stack, load: Sequence[Request], history: History) -> "list[asyncio.Task[None]]":
    return [
        asyncio.create_task(
            _follow(stack, request, history.invoke(request.prompt_ids, request.params, time.monotonic(), request.stop))
        )
        for request in load
    ]


async def _follow(stack: Stack, request: Request, operation: Operation) -> None:
    async with httpx.AsyncClient(timeout=ANSWER_S) as http:
        await perform(http, stack.base_url, stack.model, operation, request.more)


async def _rest(stack: Stack, history: History) -> None:
    """Until nothing is held and every process is ready."""
    while True:
        status = stack.status()
        blocks = status["blocks"]
        is_ready = all(service["ready"] for service in status["services"])
        if is_ready and not (blocks["held"] or blocks["freeing"] or status["running"] or status["waiting"]):
            break
        await asyncio.sleep(0.1)
    history.rested_s = time.monotonic()
    history.quiet = Quiet(blocks=blocks)
