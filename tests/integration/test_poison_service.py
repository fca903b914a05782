"""A request that kills every worker that computes it, in a whole pipeline whose host starts a new worker each time."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts import flow
from tests.integration.pipeline import CELL, MODEL, SOON_S, Answer, Pipeline, pipeline
from tests.integration.streams import STREAMS, assert_all_same, begin, until_begun

pytestmark = pytest.mark.integration

DEADLY_IDS = [1023, 1022]  # side by side they are in no other prompt and no answer


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Pipeline]:
    async with pipeline(tmp_path) as running:
        running.start_worker(step_s=0.02, deadly_ids=DEADLY_IDS)
        await running.ready()
        yield running


async def test_a_poisonous_request_ends_and_its_neighbours_do_not(running: Pipeline) -> None:
    """At most three workers die; it fails for good, is told of without its prompt, and the others are the same."""
    seen = [Answer() for _ in range(STREAMS)]
    streams = begin(running, seen)
    await until_begun(seen)

    poison = await running.ask([5, *DEADLY_IDS, 7], 5)

    assert (poison.status, poison.error["code"], poison.headers["x-should-retry"]) == (500, "poison", "false")
    assert "Traceback" not in poison.error["message"]
    await assert_all_same(streams)
    assert 1 <= len(running.killed) <= 3
    letter = await dead_letter(running)
    assert int(str(letter.pop("unix_ms"))) > 0 and str(letter.pop("request_id")).startswith("cmpl-")
    assert letter == {
        "tenant": "default",
        "deaths": 3,
        "prompt_tokens": 4,
        "generated_tokens": 0,
        "model": MODEL,
        "cell": CELL,
    }
    await running.quiet()


async def dead_letter(running: Pipeline) -> dict[str, object]:
    """The one that is there."""
    async with asyncio.timeout(SOON_S):
        while (await running.admin._js.stream_info(flow.DEAD_LETTERS_STREAM)).state.messages != 1:
            await asyncio.sleep(0.02)
    message = await running.admin._js.get_last_msg(flow.DEAD_LETTERS_STREAM, flow.dead_letters_subject(MODEL, CELL))
    entry: dict[str, object] = json.loads(message.data or b"")
    return entry
