"""Work queues and the directory of cells against a real broker: what is kept, who gets it, and the broker's death."""

import asyncio
import signal
from contextlib import aclosing

import pytest

from libs.contracts import flow
from libs.contracts.errors import Fenced, InvalidRequest, Overloaded, Unavailable
from libs.contracts.messages import CellRecord
from libs.runtime.bus import Bus
from libs.runtime.cells import claim_term
from libs.runtime.work_queue import Work
from tests.fakes.proxy import proxy
from tests.integration.servers import NatsServer

pytestmark = pytest.mark.integration

TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
RECORD = CellRecord("model-a", "c0", 0, "scheduler-1", "127.0.0.1:1", 16, "digest", 0)
SOON_S = 5.0  # far longer than anything here takes


async def next_work(bus: Bus, stream: str, subject: str, **options: object) -> Work:
    """The next message of a queue, pulled as the consumer "taker"."""
    order = {"consumer": "taker", "ack_wait_s": 5.0, "max_ack_pending": 8, **options}
    async with asyncio.timeout(SOON_S), aclosing(bus.work(stream, filter_subject=subject, **order)) as works:  # type: ignore[arg-type]
        return await anext(works)


async def test_a_full_queue_refuses_the_next_message(own_nats_server: NatsServer) -> None:
    """The oldest are kept and the newest is Overloaded; a repeated message id is stored once."""
    async with own_nats_server.connect("scheduler") as scheduler, own_nats_server.connect("gateway") as gateway:
        await scheduler.declare_work_queue(flow.REQUESTS_STREAM, ["requests.*"], max_messages=2)
        await gateway.enqueue("requests.m", b"1", message_id="a")
        await gateway.enqueue("requests.m", b"1", message_id="a")
        await gateway.enqueue("requests.m", b"2", message_id="b")

        with pytest.raises(Overloaded):
            await gateway.enqueue("requests.m", b"3", message_id="c")


async def test_a_queue_that_does_not_exist_is_unavailable(own_nats_server: NatsServer) -> None:
    """Nothing is stored and the caller knows at once."""
    async with own_nats_server.connect("gateway") as gateway:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(gateway.enqueue("requests.m", b"1", message_id="a"), SOON_S)


async def test_a_message_beyond_the_brokers_limit_is_refused(nats_server: NatsServer) -> None:
    """Before it is sent: the broker would end the connection for it."""
    async with nats_server.connect("gateway") as gateway:
        large = bytes(gateway.max_payload_bytes + 1)

        with pytest.raises(InvalidRequest):
            await gateway.enqueue("requests.m", large, message_id="large")
        with pytest.raises(ValueError, match="limit"):
            await gateway.publish("control.c0", large)

        assert gateway.connected


async def test_work_waits_for_its_stream_and_carries_the_trace(own_nats_server: NatsServer) -> None:
    """A tokenizer that starts before any scheduler gets the first request all the same."""
    async with (
        own_nats_server.connect("tokenizer") as tokenizer,
        own_nats_server.connect("scheduler") as scheduler,
        own_nats_server.connect("gateway") as gateway,
    ):
        waiting = asyncio.create_task(next_work(tokenizer, "requests", "requests.m"))
        await asyncio.sleep(0)
        await scheduler.declare_work_queue("requests", ["requests.*"], max_messages=9)
        await gateway.enqueue("requests.m", b"payload", message_id="a", traceparent=TRACEPARENT)

        work = await waiting

        assert (work.payload, work.traceparent, work.deliveries) == (b"payload", TRACEPARENT, 1)


async def test_unacknowledged_work_comes_again_and_acknowledged_does_not(own_nats_server: NatsServer) -> None:
    """nak brings the same message back, with its first time of storing; ack brings the next."""
    async with own_nats_server.connect("scheduler") as bus:
        await bus.declare_work_queue("sequences", ["sequences.*.*"], max_messages=9)
        async with own_nats_server.connect("tokenizer") as tokenizer:
            for name in "ab":
                await tokenizer.enqueue("sequences.m.c0", name.encode(), message_id=name)
        first = await next_work(bus, "sequences", "sequences.m.c0")
        await first.nak()

        again = await next_work(bus, "sequences", "sequences.m.c0", consumer="taker")
        while again.payload != first.payload:
            again = await next_work(bus, "sequences", "sequences.m.c0")
        await again.ack()

        assert (again.deliveries, again.stored_at) == (2, first.stored_at)


async def test_an_ack_that_its_connection_took_along_is_said_again(own_nats_server: NatsServer) -> None:
    """Else the message would stay in its queue for the ack wait. What has come since keeps its place."""
    async with proxy(own_nats_server.url) as way, own_nats_server.connect("tokenizer") as tokenizer:
        url, password = f"nats://127.0.0.1:{way.port}", own_nats_server.passwords["scheduler"]
        async with Bus.connect(url, service="scheduler", user="scheduler", password=password) as bus:
            await bus.declare_work_queue("sequences", ["sequences.*.*"], max_messages=9)
            await tokenizer.enqueue("sequences.m.c0", b"a", message_id="a")
            options = {"consumer": "taker", "ack_wait_s": 3600.0, "max_ack_pending": 8}
            async with aclosing(bus.work("sequences", filter_subject="sequences.m.c0", **options)) as works:  # type: ignore[arg-type]
                work = await anext(works)
                taking = asyncio.create_task(anext(works))
                way.up.silence()
                await work.ack()
                way.reset()
                way.heal()

                await tokenizer.enqueue("sequences.m.c0", b"b", message_id="b")

                assert (await asyncio.wait_for(taking, SOON_S)).payload == b"b"
                async with asyncio.timeout(SOON_S):
                    while (state := (await bus._js.stream_info("sequences")).state).messages > 1:
                        await asyncio.sleep(0.01)
                assert (state.messages, state.first_seq) == (1, 2)


async def test_a_new_consumer_takes_over_and_the_old_one_is_fenced(own_nats_server: NatsServer) -> None:
    """What the old term held unacknowledged goes to the new one; the old pull ends by Fenced."""
    subject = "sequences.m.c0"
    async with own_nats_server.connect("scheduler") as old, own_nats_server.connect("scheduler") as new:
        await old.declare_work_queue("sequences", ["sequences.*.*"], max_messages=9)
        async with own_nats_server.connect("tokenizer") as tokenizer:
            await tokenizer.enqueue(subject, b"x", message_id="x")
        options = {"filter_subject": subject, "ack_wait_s": 3600.0, "max_ack_pending": 8}
        async with aclosing(old.work("sequences", consumer="term-1", **options)) as works:  # type: ignore[arg-type]
            held = await anext(works)
            stale = asyncio.create_task(anext(works))

            taken = await next_work(new, "sequences", consumer="term-2", subject=subject)

            assert taken.payload == held.payload == b"x"
            with pytest.raises(Fenced):
                await asyncio.wait_for(stale, SOON_S)


async def test_a_lower_term_never_takes_over_from_a_higher_one(own_nats_server: NatsServer) -> None:
    """It was paused between its claim and its pull: it ends by Fenced, and the other goes on."""
    subject = "sequences.m.c0"
    async with own_nats_server.connect("scheduler") as old, own_nats_server.connect("scheduler") as new:
        await old.declare_work_queue("sequences", ["sequences.*.*"], max_messages=9)
        options = {"filter_subject": subject, "ack_wait_s": 3600.0, "max_ack_pending": 8}
        async with (
            aclosing(new.work("sequences", consumer=flow.term_consumer("m", "c0", 10), **options)) as leads,  # type: ignore[arg-type]
            aclosing(old.work("sequences", consumer=flow.term_consumer("m", "c0", 9), **options)) as late,  # type: ignore[arg-type]
            own_nats_server.connect("tokenizer") as tokenizer,
        ):
            pulling = asyncio.create_task(anext(leads))
            async with asyncio.timeout(SOON_S):
                while not await new._js.consumers_info("sequences"):
                    await asyncio.sleep(0.02)
            with pytest.raises(Fenced):
                await asyncio.wait_for(anext(late), SOON_S)
            await tokenizer.enqueue(subject, b"x", message_id="x")
            assert (await asyncio.wait_for(pulling, SOON_S)).payload == b"x"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_pull_goes_on_after_the_broker_restarts(own_nats_server: NatsServer, number: int) -> None:
    """A probe published after the restart on the same store comes through the pull that was open before."""
    async with (
        own_nats_server.connect("scheduler") as scheduler,
        own_nats_server.connect("gateway") as gateway,
        own_nats_server.connect("tokenizer") as tokenizer,
    ):
        await scheduler.declare_work_queue("requests", ["requests.*"], max_messages=9)
        await gateway.enqueue("requests.m", b"before", message_id="1")
        options = {"consumer": "taker", "ack_wait_s": 2.0, "max_ack_pending": 8}
        async with aclosing(tokenizer.work("requests", filter_subject="requests.m", **options)) as works:  # type: ignore[arg-type]
            await (await anext(works)).ack()
            probe = asyncio.create_task(anext(works))
            await restart(own_nats_server, number)

            await until_stored(gateway, "requests.m", b"probe")

            assert (await asyncio.wait_for(probe, SOON_S)).payload == b"probe"


async def test_everything_declared_comes_back_after_the_store_is_lost(own_nats_server: NatsServer) -> None:
    """Queue, bucket, the cell's record with its term, and the consumer are there again without anybody's doing."""
    async with (
        own_nats_server.connect("scheduler") as scheduler,
        own_nats_server.connect("gateway") as gateway,
        own_nats_server.connect("tokenizer") as tokenizer,
    ):
        await scheduler.declare_work_queue("requests", ["requests.*"], max_messages=9)
        await scheduler.declare_cells()
        claimed = await scheduler.claim_term(RECORD)
        probe = asyncio.create_task(next_work(tokenizer, "requests", "requests.m"))
        await restart(own_nats_server, signal.SIGKILL, lose_store=True)

        await until_stored(gateway, "requests.m", b"probe")

        assert (await probe).payload == b"probe"
        async with own_nats_server.connect("decode_worker") as worker:
            cells = await worker.cells()
            while not cells.get(RECORD.model):
                await asyncio.wait_for(cells.changed.wait(), SOON_S)
            assert cells.get(RECORD.model) == (claimed,)


async def test_a_claim_after_the_store_was_lost_is_above_every_term_before(own_nats_server: NatsServer) -> None:
    """The bucket is gone, and with it who claimed: nobody restores the record."""
    terms = []
    for _ in range(2):
        async with own_nats_server.connect("scheduler") as scheduler:
            await scheduler.declare_cells()
            terms += [(await scheduler.claim_term(RECORD)).term for _ in range(3)]
        await restart(own_nats_server, signal.SIGKILL, lose_store=True)

    assert terms == sorted(set(terms))


async def test_a_clock_that_goes_back_lowers_no_term(nats_server: NatsServer) -> None:
    """With the record there, a term is above the last one whatever time it is."""
    record = CellRecord("model-c", "c0", 0, "s", "", 16, "", 0)
    async with nats_server.connect("scheduler") as scheduler:
        await scheduler.declare_cells()

        times_ms = iter((500, 100, 90, 900))
        claims = [await claim_term(scheduler._js, record, None, unix_ms=lambda: next(times_ms)) for _ in range(4)]

        assert [claimed.term for claimed in claims] == [500, 501, 502, 900]


async def test_terms_only_rise_and_each_is_claimed_once(nats_server: NatsServer) -> None:
    """Claims at the same time get different terms, and a record of a lower term is fenced."""
    async with nats_server.connect("scheduler") as one, nats_server.connect("scheduler") as two:
        await one.declare_cells()

        claims = await asyncio.gather(*(bus.claim_term(RECORD) for bus in (one, two, one, two)))

        terms = sorted(claimed.term for claimed in claims)
        assert len(set(terms)) == 4
        with pytest.raises(Fenced):
            await one.put_cell(CellRecord("model-a", "c0", terms[-2], "old", "", 16, "", 0))


async def test_a_directory_follows_the_records(nats_server: NatsServer) -> None:
    """It starts with what is stored and hears of each change; models are told apart."""
    record = CellRecord("model-b", "c0", 0, "s", "127.0.0.1:1", 16, "digest", 0)
    async with nats_server.connect("scheduler") as scheduler, nats_server.connect("decode_worker") as worker:
        await scheduler.declare_cells()
        term = (await scheduler.claim_term(record)).term
        cells = await worker.cells()
        assert [found.term for found in cells.get("model-b")] == [term]
        changed = cells.changed

        await scheduler.put_cell(CellRecord("model-b", "c0", term, "s", "127.0.0.1:2", 16, "digest", 500))

        await asyncio.wait_for(changed.wait(), SOON_S)
        assert cells.get("model-b")[0].max_prompt_tokens == 500
        assert cells.get("model-nobody-serves") == ()


async def restart(server: NatsServer, number: int, *, lose_store: bool = False) -> None:
    """End the broker by a signal and start it again."""
    await asyncio.to_thread(server.stop, number)
    if lose_store:
        server.lose_store()
    await asyncio.to_thread(server.start)


async def until_stored(bus: Bus, subject: str, payload: bytes) -> None:
    """Store a message as soon as the broker takes it again."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                return await bus.enqueue(subject, payload, message_id="probe")
            except Unavailable:
                await asyncio.sleep(0.01)
