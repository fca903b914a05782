"""The tokenizer between a real broker and a real index, with a gateway and a scheduler played by the test."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from libs.contracts import block_hash, flow
from libs.contracts.errors import Unavailable
from libs.contracts.messages import Accepted, Cancel, CellRecord, Grammar, Prompt, Rejected, SamplingParams
from libs.runtime.prefix_index import PrefixIndex
from libs.structured.resolve import resolve
from libs.text.model_files import read_model_files
from libs.text.tokenizer import Tokenizer
from tests.integration.servers import NatsServer, ValkeyServer
from tests.integration.tokenizer_stage import (
    BLOCK_TOKENS,
    HASH_KEY,
    MAX_MODEL_LEN,
    MODEL,
    SOON_S,
    TRACEPARENT,
    Stage,
    is_told_soon,
    request,
    tokenizer,
    until_status,
)
from tests.unit.text.small_model import EOS, TEMPLATE, small_tokenizer_json

pytestmark = pytest.mark.integration


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A model directory with the small tokenizer."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(small_tokenizer_json())
    config = {"chat_template": TEMPLATE, "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS}))
    return folder


@pytest.fixture
async def quiet_stage(own_nats_server: NatsServer, model_dir: Path) -> AsyncIterator[Stage]:
    """Queues and bucket are there; no cell, no gateway, no tokenizer yet."""
    server = own_nats_server
    async with server.connect("scheduler") as scheduler, server.connect("gateway") as gateway:
        await scheduler.declare_work_queue(flow.REQUESTS_STREAM, ["requests.*"], max_messages=100)
        await scheduler.declare_work_queue(flow.SEQUENCES_STREAM, ["sequences.*.*"], max_messages=5)
        await scheduler.declare_cells()
        yield Stage(server, gateway, scheduler, model_dir)


@pytest.fixture
async def stage(quiet_stage: Stage) -> AsyncIterator[Stage]:
    """One cell, a gateway that answers, and a tokenizer."""
    await quiet_stage.lead("c0")
    await quiet_stage.answer_gateway()
    async with tokenizer(quiet_stage.server, quiet_stage.model_dir):
        yield quiet_stage


async def test_a_prompt_becomes_a_sequence_and_the_gateway_hears_of_it(stage: Stage) -> None:
    """Ids, hashes and parameters reach the cell's queue, Accepted the gateway; then the request is acknowledged."""
    files = read_model_files(stage.model_dir)
    grammar = Grammar("choice", '["a"]', "structured_outputs")
    params = SamplingParams(max_tokens=1000, seed=7, grammar=grammar)
    sent = request(text="Hello, all! " * 5, echo_ids=True, params=params)
    ids = tuple(Tokenizer(files).encode(sent.prompt.text, add_special_tokens=True))

    await stage.send(sent)

    told = await stage.next_told()
    sequence, work = await stage.next_sequence()
    assert told == Accepted("r1", 1, "c0", len(ids), ids)
    assert sequence.ids == ids
    root = block_hash.root_hash(
        HASH_KEY, tenant="tenant", model_digest="digest", adapter="", tokenizer_digest=files.digest
    )
    assert sequence.block_hashes == block_hash.block_hashes(HASH_KEY, root, ids, BLOCK_TOKENS)
    assert sequence.params == replace(params, max_tokens=MAX_MODEL_LEN - len(ids), grammar=resolve(grammar))
    assert sequence.deadline_unix_ms == sent.deadline_unix_ms
    assert work.traceparent == TRACEPARENT
    assert await stage.queue_is_empty()


async def test_a_typed_error_goes_back_to_the_gateway(stage: Stage) -> None:
    """Too long, unknown ids, time over, no grammar: Rejected with code and field, and the request is acknowledged."""
    await stage.send(request("long", "x" * 1000))
    await stage.send(request("ids", prompt=Prompt(ids=(1, 2, 999_999), kind="ids")))
    await stage.send(request("late", deadline_unix_ms=1))
    await stage.send(request("form", params=SamplingParams(grammar=Grammar("regex", "(", "guided_regex"))))

    told = {message.request_id: message for message in [await stage.next_told() for _ in range(4)]}

    errors = {name: (m.error.code, m.error.param) for name, m in told.items() if isinstance(m, Rejected)}
    assert errors == {
        "long": ("context_length_exceeded", "prompt"),
        "ids": ("invalid_request", "prompt"),
        "late": ("deadline_exceeded", ""),
        "form": ("invalid_request", "guided_regex"),
    }
    assert await stage.queue_is_empty()


async def test_a_full_cell_is_overloaded(stage: Stage) -> None:
    """What the sequences' queue refuses is rejected as retryable."""
    for number in range(5):
        await stage.send(request(f"r{number}"))
        assert isinstance(await stage.next_told(), Accepted)

    await stage.send(request("one too many"))

    told = await stage.next_told()
    assert isinstance(told, Rejected) and (told.error.code, told.error.retryable) == ("overloaded", True)


async def test_a_malformed_message_does_not_come_again(stage: Stage) -> None:
    """It is acknowledged, and the next request is served."""
    await stage.gateway.enqueue(flow.requests_subject(MODEL), b"\xff\xff", message_id="bad")
    await stage.send(request())

    assert isinstance(await stage.next_told(), Accepted)
    assert await stage.queue_is_empty()


@pytest.mark.parametrize("there", [True, False])
async def test_a_request_nobody_waits_for_is_cancelled(quiet_stage: Stage, there: bool) -> None:
    """The gateway no longer holds it, or is gone: the scheduler is told."""
    stage, stage.live = quiet_stage, False
    await stage.lead("c0")
    if there:
        await stage.answer_gateway()
    async with tokenizer(stage.server, stage.model_dir):
        await stage.send(sent := request())

        cell, cancel = await asyncio.wait_for(stage.cancelled.get(), SOON_S)

        assert (cell, cancel) == ("c0", Cancel("r1", sent.deadline_unix_ms, stage.term, 1))
        assert {trace[:35] for trace in stage.traces} == {TRACEPARENT[:35]}, "its trace id"
        assert await stage.queue_is_empty()


async def test_a_gateway_that_answers_late_is_asked_again(quiet_stage: Stage) -> None:
    """One that is still reconnecting is not taken for gone."""
    stage = quiet_stage
    await stage.lead("c0")
    async with tokenizer(stage.server, stage.model_dir):
        await stage.send(request())
        await stage.next_sequence()
        assert not await is_told_soon(stage)  # nobody is there to be told

        await stage.answer_gateway()

        assert isinstance(await stage.next_told(), Accepted)
        assert stage.cancelled.empty()


async def test_without_a_cell_the_gateway_hears_unavailable(quiet_stage: Stage) -> None:
    """A retryable refusal, at once; a cell that comes later is used."""
    stage = quiet_stage
    await stage.answer_gateway()
    async with tokenizer(stage.server, stage.model_dir):
        await stage.send(request("early"))
        told = await stage.next_told()
        assert isinstance(told, Rejected) and told.error.code == Unavailable.code

        await stage.lead("c0")
        await until_status(stage, ready=True)
        await stage.send(request("later"))

        assert isinstance(await stage.next_told(), Accepted)


async def test_a_cell_that_is_starting_is_waited_for(quiet_stage: Stage) -> None:
    """A new term's record without blocks is no refusal: the request goes there once the workers are back."""
    stage = quiet_stage
    await stage.answer_gateway()
    await stage.scheduler.claim_term(CellRecord(MODEL, "c0", 0, "s", "127.0.0.1:1", 0, "", 0))
    async with tokenizer(stage.server, stage.model_dir):
        await until_status(stage, ready=False)
        await stage.send(request())
        assert not await is_told_soon(stage)

        await stage.lead("c0")

        assert isinstance(await stage.next_told(), Accepted)


async def test_the_cell_with_the_longest_known_prefix_is_chosen(
    quiet_stage: Stage, valkey_server: ValkeyServer
) -> None:
    """Without knowledge the first cell by name; a cell that is too small for the prompt never."""
    stage = quiet_stage
    await stage.answer_gateway()
    await stage.lead("c0")
    await stage.lead("c1", max_prompt_tokens=100)
    redis = {"REDIS_URL": valkey_server.url, "REDIS_USER": "tokenizer"}
    text = "abcdefgh" * 8
    async with (
        tokenizer(stage.server, stage.model_dir, **redis, REDIS_PASSWORD=valkey_server.passwords["tokenizer"]),
        PrefixIndex.connect(
            valkey_server.url, user="scheduler", password=valkey_server.passwords["scheduler"]
        ) as index,
    ):
        await stage.send(request("cold", text))
        sequence, _ = await stage.next_sequence("c0")
        await stage.next_told()

        await index.apply("c1", 1, sequence.block_hashes[:2], [])
        await stage.send(request("warm", text))
        await stage.send(request("too long for c1", text * 3))

        told = {m.request_id: m for m in [await stage.next_told() for _ in range(2)]}
        cells = {name: m.cell for name, m in told.items() if isinstance(m, Accepted)}
        assert cells == {"warm": "c1", "too long for c1": "c0"}


async def test_a_killed_tokenizers_work_is_done_by_the_next(quiet_stage: Stage) -> None:
    """A request it had not acknowledged comes again, and its sequence is stored once."""
    stage = quiet_stage
    await stage.lead("c0")
    async with tokenizer(stage.server, stage.model_dir) as first:
        await stage.send(request())
        async with stage.sequences("c0") as works:
            await anext(works)
            first.kill()
            async with tokenizer(stage.server, stage.model_dir):
                await stage.answer_gateway()
                assert isinstance(await stage.next_told(), Accepted)
                assert await stage.queue_is_empty()
    info = await stage.scheduler._js.stream_info(flow.SEQUENCES_STREAM)
    assert info.state.messages == 1


async def test_requests_survive_the_brokers_death(stage: Stage) -> None:
    """After kill -9 and a restart on the same store, the next request is served without anybody's doing."""
    await stage.send(request("before"))
    await stage.next_told()
    await asyncio.to_thread(stage.server.stop, signal.SIGKILL)
    await asyncio.to_thread(stage.server.start)

    async with asyncio.timeout(SOON_S):
        while True:
            with suppress(Unavailable):
                await stage.send(request("after"))
                break
            await asyncio.sleep(0.01)

    told = await stage.next_told()
    while (
        isinstance(told, Accepted) and told.request_id == "before"
    ):  # its acknowledgement may have died with the broker
        told = await stage.next_told()
    assert isinstance(told, Accepted) and told.request_id == "after"


async def test_sigterm_finishes_what_was_taken_and_exits_cleanly(quiet_stage: Stage) -> None:
    """The request in flight is accepted, nothing new is taken, exit code 0."""
    stage = quiet_stage
    await stage.lead("c0")
    async with tokenizer(stage.server, stage.model_dir) as process:
        await stage.send(request("taken"))
        await stage.next_sequence()
        process.send_signal(signal.SIGTERM)
        await stage.answer_gateway()

        assert (await stage.next_told()).request_id == "taken"
        _, errors = await asyncio.wait_for(process.communicate(), SOON_S)

        assert (process.returncode, b"Traceback" in errors) == (0, False)
        await stage.send(request("not taken"))
        assert not await is_told_soon(stage)


async def test_bad_settings_stop_it_with_one_line(own_nats_server: NatsServer, model_dir: Path) -> None:
    """Exit code 2, and all problems named without the secret's value."""
    async with tokenizer(own_nats_server, model_dir, HASH_KEY="not hex", MODLE="x", MAX_MODEL_LEN="1") as process:
        _, errors = await process.communicate()

    lines = errors.decode().splitlines()
    assert (process.returncode, len(lines)) == (2, 1)
    assert all(name in lines[0] for name in ("HASH_KEY", "MODLE", "MAX_MODEL_LEN")) and "not hex" not in lines[0]
