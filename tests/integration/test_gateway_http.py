"""The gateway behind a real server and a real broker, with the official client in front and a played backend behind."""

import asyncio
import json
import signal
import sys

import httpx
import openai
import pytest

from libs.contracts import codec, flow
from libs.contracts.messages import Cancel, Delivered, Resend, ServiceStatus, StopAt
from tests.fakes.collector import Collector
from tests.integration.gateway_stage import INSTANCE, KEY, START_S, Stack, ids_of
from tests.unit.gateway.backend import MODEL
from tests.unit.text.small_model import EOS as SMALL_EOS

pytestmark = pytest.mark.integration


async def test_the_official_client_chats(stack: Stack) -> None:
    """Whole: the message, the reason, the usage; and the scheduler is told that everything was delivered."""
    async with stack.client() as client:
        call = asyncio.create_task(
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
        )
        request = await stack.answer([*ids_of("héllo"), SMALL_EOS], "stop")
        answer = await call

    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("héllo", "stop")
    assert answer.usage and (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 7)
    assert await stack.backend.told(Delivered) == Delivered(request.request_id, (7,), stack.backend.term, 1)
    assert answer.id == request.request_id


async def test_the_official_client_streams_each_token_as_it_comes(stack: Stack) -> None:
    """A chunk is here before the next token is generated; usage comes last."""
    async with stack.client() as client:
        call = asyncio.create_task(
            client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hi"}],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        request = await stack.accepted()
        ids, chunks = ids_of("abc"), []
        await stack.backend.tokens(request, 0, ids[:1])
        stream = await call
        async for chunk in stream:
            chunks.append(chunk)
            seen = sum(bool(c.choices and c.choices[0].delta.content) for c in chunks)
            if seen < 3 and chunk.choices and chunk.choices[0].delta.content:
                await stack.backend.tokens(request, seen, [ids[seen]], "length" if seen == 2 else "")

    assert [c.choices[0].delta.content for c in chunks[:-1]] == ["", "a", "b", "c"]
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage and chunks[-1].usage.completion_tokens == 3


@pytest.mark.parametrize("lost", [(1,), (0, 1, 3), (5,)])
async def test_frames_that_the_broker_loses_are_repaired(stack: Stack, lost: tuple[int, ...]) -> None:
    """In the middle, at the start, or the last one, which Finished reveals: the text is whole."""
    async with stack.client() as client:
        call = asyncio.create_task(client.completions.create(model=MODEL, prompt="x"))
        request = await stack.answer(ids_of("abcdef"), "length", lost=lost)
        assert await stack.backend.finished(request, 6, "length")
        answer = await call

    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("abcdef", "length")
    assert isinstance(stack.backend.control.get_nowait(), Resend)


async def test_a_stop_string_over_tokens_ends_the_answer(stack: Stack) -> None:
    """Cut at its first character; the scheduler hears the position of its last token."""
    async with stack.client() as client:
        call = asyncio.create_task(client.completions.create(model=MODEL, prompt="x", stop=["cd"]))
        request = await stack.answer(ids_of("abcdef"), "length")
        answer = await call

    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("ab", "stop")
    assert await stack.backend.told(StopAt) == StopAt(request.request_id, 0, 3, stack.backend.term, 1)
    assert await stack.backend.told(Delivered) == Delivered(request.request_id, (4,), stack.backend.term, 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_is_cancelled(stack: Stack, stream: bool) -> None:
    """Within a quarter of a second, streamed or not, with nothing but the closed socket as a sign."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(stack.base_url.rpartition(":")[2]))
    body = json.dumps({"model": MODEL, "prompt": "x", "stream": stream, "max_tokens": 200}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    request = await stack.accepted()
    await stack.backend.tokens(request, 0, ids_of("a"))
    if stream:
        await reader.readuntil(b'"text":"a"')
    writer.close()

    async with asyncio.timeout(0.25):
        cancel = await stack.backend.told(Cancel)
    assert cancel == Cancel(request.request_id, request.deadline_unix_ms, stack.backend.term, 1)


async def test_errors_are_the_clients_own_types(stack: Stack) -> None:
    """Wrong key, unknown model, bad field, as the official client raises them."""
    async with stack.client(key="wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
    async with stack.client() as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.completions.create(model="nope", prompt="x")
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as bad:
            await client.completions.create(model=MODEL, prompt="x", temperature=9)
        assert bad.value.param == "temperature"
        assert [model.id for model in (await client.models.list()).data] == [MODEL]


async def test_sigterm_lets_streams_finish(stack: Stack) -> None:
    """Not ready at once, nothing new, the running stream to its end, exit code 0."""
    async with stack.client() as client, httpx.AsyncClient(base_url=stack.base_url) as probe:
        call = asyncio.create_task(client.completions.create(model=MODEL, prompt="x", max_tokens=2))
        request = await stack.accepted()
        await stack.backend.tokens(request, 0, ids_of("a"))
        stack.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(2):
            while (await probe.get("/ready")).status_code != 503:
                await asyncio.sleep(0.01)
        with pytest.raises(openai.InternalServerError) as refused:
            await client.completions.create(model=MODEL, prompt="x")
        assert refused.value.status_code == 503 and refused.value.response.headers["connection"] == "close"
        await stack.backend.tokens(request, 1, ids_of("b"), "length")

        assert (await call).choices[0].text == "ab"
        assert await asyncio.wait_for(stack.process.wait(), 5) == 0


async def test_spans_show_where_each_token_came_from(stack: Stack, traces: Collector) -> None:
    """A root that no client can choose, and one span a worker that delivered, below that worker's own."""
    prefill, decode = f"00-{'a' * 32}-{'1' * 16}-01", f"00-{'a' * 32}-{'2' * 16}-01"
    async with stack.client() as client:
        call = asyncio.create_task(
            client.completions.create(model=MODEL, prompt="x", extra_headers={"traceparent": prefill})
        )
        request = await stack.accepted()
        await stack.backend.tokens(request, 0, ids_of("a"), traceparent=prefill)
        await stack.backend.tokens(request, 1, ids_of("b"), traceparent=decode)
        await stack.backend.tokens(request, 2, ids_of("c"), "length")
        await call
    stack.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(stack.process.wait(), 10) == 0

    (root,) = (span for span in traces.spans if span.name == flow.GATEWAY_REQUEST)
    first, second = sorted((s for s in traces.spans if s.name == flow.DELIVER), key=lambda span: span.start_ns)
    assert root.parent_id == b"" and root.trace_id.hex() != "a" * 32
    assert (first.parent_id.hex(), second.parent_id.hex()) == ("1" * 16, "2" * 16)
    assert first.end_ns == second.start_ns and second.end_ns == root.end_ns


async def test_a_taken_port_stops_the_start(stack: Stack) -> None:
    """Two gateways on one port would share its connections in silence: the second ends with exit code 2."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", env=stack.environ, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await asyncio.wait_for(process.communicate(), START_S)

    assert process.returncode == 2 and b"cannot listen on 127.0.0.1 port" in stderr and b"Traceback" not in stderr


async def test_it_says_on_the_bus_who_it_is(stack: Stack) -> None:
    """A status with its port, ready."""
    payload = await stack.bus.request(flow.STATUS_SUBJECT, b"", timeout_s=2)
    status = codec.decode(ServiceStatus, payload)

    assert (status.service, status.instance, status.ready) == ("gateway", INSTANCE, True)
    assert status.port == int(stack.base_url.rpartition(":")[2])
