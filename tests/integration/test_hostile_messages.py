"""What nobody should send: nonsense, unknown kinds, the same message twice. It is refused, and harms no one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.contracts import flow
from libs.contracts.errors import Unavailable
from tests.integration.pipeline import CELL, GATEWAY, MODEL, Answer, Pipeline
from tests.integration.streams import STREAMS, assert_all_same, begin

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

NONSENSE = {
    "no protobuf": b"\xff\xff\xff nonsense",
    "empty": b"",
    "a kind of the future": bytes((0xFA, 0x7F, 2, 8, 1)),  # field 2047, of which nobody knows
    "cut short": bytes((10, 200, 1)) + b"abc",
}
QUEUES = {"requests": flow.requests_subject(MODEL), "sequences": flow.sequences_subject(MODEL, CELL)}
SUBJECTS = (
    flow.control_subject(CELL),
    flow.alive_subject(GATEWAY),
    flow.tokens_subject(GATEWAY),
    flow.replies_subject(GATEWAY),
    flow.STATUS_SUBJECT,
    "cells.nonsense",
)


@pytest.mark.parametrize("payload", NONSENSE.values(), ids=list(NONSENSE))
async def test_nonsense_leaves_the_queues_and_stops_no_subject(running: Pipeline, payload: bytes) -> None:
    """Each consumer goes on with what comes next, beside it and after it."""
    streams = begin(running, [Answer() for _ in range(STREAMS)], 20)
    for number in range(5):
        for subject in QUEUES.values():
            await running.admin.enqueue(subject, payload, message_id=f"{payload.hex()}:{number}:{subject}")
        for subject in SUBJECTS:
            await running.admin.publish(subject, payload)
            if subject != flow.STATUS_SUBJECT:  # it is asked without words
                with pytest.raises(Unavailable):
                    await running.admin.request(subject, payload, timeout_s=0.02)

    await assert_all_same(streams, 20)
    await running.quiet()
    await assert_all_same(begin(running, [Answer()], 5), 5)


@asynccontextmanager
async def doubled(running: Pipeline, subject: str) -> AsyncIterator[list[str]]:
    """Each message to a queue is stored twice, under another id; those that were."""
    again: list[str] = []

    async def store(message: Any) -> None:
        headers = dict(message.headers or {})
        message_id = headers.get("Nats-Msg-Id", "")
        if message_id and not message_id.endswith(":again"):
            again.append(message_id)
            await running.admin._client.publish(
                subject, message.data, headers=headers | {"Nats-Msg-Id": f"{message_id}:again"}
            )

    subscription = await running.admin._client.subscribe(subject, cb=store)
    await running.admin._client.settle()
    try:
        yield again
    finally:
        await subscription.unsubscribe()


@pytest.mark.parametrize("queue", QUEUES)
async def test_a_message_that_comes_twice_is_done_once(running: Pipeline, queue: str) -> None:
    """A lost acknowledgement, or a time that ran out: the client sees each token once, and nothing stays behind."""
    async with doubled(running, QUEUES[queue]) as again:
        await assert_all_same(begin(running, [Answer() for _ in range(STREAMS)], 40), 40)
        assert len(again) == STREAMS

    await running.quiet()
