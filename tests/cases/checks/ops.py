"""Cases of processes that come, go and are counted."""

import asyncio
import re
import signal
import time
from contextlib import suppress

import httpx

from tests.cases.faulty import outages
from tests.cases.play import Play
from tests.cases.reply import Reply
from tests.cases.stage import Stage

GET = {"method": "GET"}


async def _metrics(stage: Stage) -> dict[str, float]:
    text = (await stage.client.send({**GET, "path": "/metrics"})).body.decode()
    found = re.findall(r"^([a-z_:]+(?:\{[^}]*\})?) ([0-9.e+-]+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def _of(metrics: dict[str, float], name: str, label: str = "") -> float:
    return sum(value for key, value in metrics.items() if key.startswith(f"vllm:{name}") and label in key)


async def _is_ready(stage: Stage) -> bool:
    return (await stage.client.send({**GET, "path": "/ready"})).status == 200


async def _until_ready(stage: Stage) -> None:
    until_s = time.monotonic() + 10
    while True:
        with suppress(httpx.TransportError):
            if await _is_ready(stage):
                return
        assert time.monotonic() < until_s
        await asyncio.sleep(0.05)


async def b167(play: Play) -> None:
    """This stage was ready when a completion worked, which starting it has shown; ready means that again."""
    assert await _is_ready(play.stage)
    assert (await play.stage.complete({"prompt": "Hi", "max_tokens": 1})).status == 200


async def b168(play: Play) -> None:
    """Without a worker requests wait or are refused soon; there is one again without anybody's help."""
    stage = play.stage
    for process in stage.stack.processes("decode_worker"):
        process.kill()
    reply = await stage.complete({"prompt": "Hi", "max_tokens": 2})
    assert reply.status in (200, 503) and reply.took_s < 5
    await _until_ready(stage)


async def b170(play: Play) -> None:
    """A gateway that is told to end finishes its streams, and is started again."""
    stage = play.stage
    body = {"prompt": "Go", "stream": True, "max_tokens": 600, "ignore_eos": True, "temperature": 0}
    asked = [asyncio.create_task(stage.complete({**body, "seed": seed})) for seed in range(5)]
    until_s = time.monotonic() + 5
    while (await asyncio.to_thread(stage.stack.status))["running"] < len(asked):
        assert time.monotonic() < until_s
    stage.stack.processes("gateway")[0].send_signal(signal.SIGTERM)
    for reply in await asyncio.gather(*asked):
        assert (reply.status, reply.is_done, reply.reasons) == (200, True, ["length"])
    await _until_ready(stage)


async def b172(play: Play) -> None:
    """One of two workers dies under load: all are answered, also those that had heard something, as if it had not."""
    stage, tokens = play.stage, 100

    async def ask(index: int, *, stream: bool) -> Reply:
        body = {"prompt": f"Go {index % 20}", "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        reply: Reply = await stage.complete({**body, "stream": stream})
        return reply

    async def ask_in_turn(index: int) -> Reply:
        await asyncio.sleep(index / 10)
        if index == 50:
            stage.stack.processes("decode_worker")[0].kill()
        return await ask(index, stream=index % 2 == 0)

    expected = [(await ask(index, stream=False)).text for index in range(20)]
    for index, reply in enumerate(await asyncio.gather(*map(ask_in_turn, range(300)))):
        reply.check()
        assert (reply.status, reply.reasons, reply.text) == (200, ["length"], expected[index % 20])


async def b174(play: Play) -> None:
    """The brokers freeze for a moment, one after the other: no process ends, and requests are served again.

    Then they are away for longer, and so is a link, where connections can be made bad.
    """
    stage = play.stage
    before = {process.pid for process in stage.stack.processes("gateway") + stage.stack.processes("scheduler")}
    for broker in ("nats", "valkey"):
        (process,) = stage.stack.program(broker)
        process.suspend()
        await asyncio.sleep(0.5)
        process.resume()
        until_s = time.monotonic() + 15
        while (await stage.complete({"prompt": "Hi", "max_tokens": 2})).status != 200:
            assert time.monotonic() < until_s
            await asyncio.sleep(0.05)
    assert {process.pid for process in stage.stack.processes("gateway") + stage.stack.processes("scheduler")} == before
    await outages(play.scratch)


async def b176(play: Play) -> None:
    """Who leaves is counted as such, once."""
    before = await _metrics(play.stage)
    (request,) = play.requests
    await asyncio.gather(*(play.stage.client.send(request, leave_after=2) for _ in range(5)))
    await play.stage.calm()
    after = await _metrics(play.stage)
    gone = 'finished_reason="abort"'
    assert _of(after, "request_success", gone) == _of(before, "request_success", gone) + 5
    assert _of(after, "request_success_total") == _of(before, "request_success_total") + 5 + 1  # and a probe


async def b177(play: Play) -> None:
    """One request is one, its prompt counts once, its tokens as many as there are."""
    before = await _metrics(play.stage)
    (reply,) = await play.play()
    after = await _metrics(play.stage)
    for name, grown in (
        ("request_success_total", 1),
        ("prompt_tokens_total", reply.prompt_tokens),
        ("generation_tokens_total", 6),
        ("time_to_first_token_seconds_count", 1),
    ):
        assert _of(after, name) == _of(before, name) + grown, name
