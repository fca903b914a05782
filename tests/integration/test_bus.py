"""The bus against a real broker, under the permissions of flow.py."""

import asyncio
import time
from contextlib import suppress

import pytest

from libs.contracts import codec, flow
from libs.contracts.errors import ConfigError, MalformedMessage, Unavailable
from libs.contracts.messages import ServiceStatus
from libs.runtime.bus import Bus, NoResponder, RequestTimeout, Responder
from libs.runtime.status import serve_status
from tests.integration.servers import ADMIN, NatsServer, free_port

pytestmark = pytest.mark.integration

TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
SOON_S = 5.0  # far longer than anything here takes


async def test_a_published_message_reaches_its_subscriber_with_its_trace(nats_server: NatsServer) -> None:
    """A worker's frame arrives at the gateway, payload and traceparent as sent."""
    arrived: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue()
    async with nats_server.connect("gateway") as gateway, nats_server.connect("decode_worker") as worker:
        await gateway.subscribe(flow.tokens_subject("g1"), lambda *message: arrived.put_nowait(message))

        await worker.publish(flow.tokens_subject("g1"), b"frame", traceparent=TRACEPARENT)
        await worker.publish(flow.tokens_subject("g1"), b"bare")

        assert await asyncio.wait_for(arrived.get(), SOON_S) == (b"frame", TRACEPARENT)
        assert await asyncio.wait_for(arrived.get(), SOON_S) == (b"bare", "")


async def test_messages_keep_their_order_whichever_way_they_take(nats_server: NatsServer) -> None:
    """Those with a trace wait in the library's buffer; those without are written at once, but never before them."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    async with nats_server.connect("gateway") as gateway, nats_server.connect("decode_worker") as worker:
        await gateway.subscribe(flow.tokens_subject("g1"), lambda payload, _: arrived.put_nowait(payload))

        for index in range(300):
            await worker.publish(
                flow.tokens_subject("g1"), b"%d" % index, traceparent=TRACEPARENT if index % 3 == 0 else ""
            )
            if index % 50 == 0:
                await asyncio.sleep(0)

        async with asyncio.timeout(SOON_S):
            assert [await arrived.get() for _ in range(300)] == [b"%d" % index for index in range(300)]


async def test_requests_of_one_subject_are_served_side_by_side(nats_server: NatsServer) -> None:
    """A handler that waits for a later request gets it."""
    second = asyncio.Event()

    async def answer(payload: bytes, traceparent: str) -> bytes:
        if payload == b"first":
            await second.wait()
        else:
            second.set()
        return payload + traceparent.encode()

    async with nats_server.connect("scheduler") as scheduler, nats_server.connect("gateway") as gateway:
        await scheduler.serve(flow.control_subject("side"), answer)

        answer_1, answer_2 = await asyncio.gather(
            gateway.request(flow.control_subject("side"), b"first", timeout_s=SOON_S),
            gateway.request(flow.control_subject("side"), b"second", timeout_s=SOON_S, traceparent=TRACEPARENT),
        )

    assert (answer_1, answer_2) == (b"first", b"second" + TRACEPARENT.encode())


async def test_a_request_nobody_serves_fails_at_once(nats_server: NatsServer) -> None:
    """NoResponder comes from the broker, long before the time limit."""
    async with nats_server.connect("gateway") as gateway:
        with pytest.raises(NoResponder):
            await asyncio.wait_for(gateway.request(flow.control_subject("none"), b"", timeout_s=60), SOON_S)


async def test_a_malformed_request_is_counted_and_not_answered(nats_server: NatsServer) -> None:
    """The asker sees a timeout, the server goes on."""

    async def answer(payload: bytes, traceparent: str) -> bytes:
        if payload == b"bad":
            raise MalformedMessage("bad")
        return b"ok"

    async with nats_server.connect("scheduler") as scheduler, nats_server.connect("gateway") as gateway:
        await scheduler.serve(flow.control_subject("strict"), answer)

        with pytest.raises(RequestTimeout):
            await gateway.request(flow.control_subject("strict"), b"bad", timeout_s=0.05)

        assert await gateway.request(flow.control_subject("strict"), b"good", timeout_s=SOON_S) == b"ok"
        assert scheduler.counts["malformed_message"] == 1


async def test_a_scattered_question_gathers_all_answers(nats_server: NatsServer) -> None:
    """Everybody who serves the subject is heard, and a wrong count only costs the time limit."""

    def named(name: bytes) -> Responder:
        async def answer(payload: bytes, traceparent: str) -> bytes:
            return name + payload

        return answer

    async with (
        nats_server.connect("supervisor") as supervisor,
        nats_server.connect("gateway") as one,
        nats_server.connect("tokenizer") as two,
    ):
        assert await supervisor.scatter(flow.STATUS_SUBJECT, b"?", answers=1, within_s=0.05) == []
        await one.serve(flow.STATUS_SUBJECT, named(b"one"))
        await two.serve(flow.STATUS_SUBJECT, named(b"two"))

        assert sorted(await supervisor.scatter(flow.STATUS_SUBJECT, b"?", answers=2, within_s=SOON_S)) == [
            b"one?",
            b"two?",
        ]
        assert len(await supervisor.scatter(flow.STATUS_SUBJECT, b"?", answers=3, within_s=0.05)) == 2


LINKS = [
    ("gateway", "control.c0", "scheduler"),
    ("gateway", "alive.g1", "scheduler"),
    ("tokenizer", "replies.g1", "gateway"),
    ("tokenizer", "control.c0", "scheduler"),
    ("scheduler", "replies.g1", "gateway"),
    ("scheduler", "host.h1", "supervisor"),
    ("supervisor", "control.c0", "scheduler"),
    ("prefill_worker", "tokens.g1", "gateway"),
    ("decode_worker", "tokens.g1", "gateway"),
]


@pytest.mark.parametrize(("asking", "subject", "answering"), LINKS)
async def test_every_link_of_the_protocol_is_allowed(
    nats_server: NatsServer, asking: str, subject: str, answering: str
) -> None:
    """A message goes out and an answer comes back under the two services' own permissions."""

    async def answer(payload: bytes, traceparent: str) -> bytes:
        return payload

    async with nats_server.connect(asking) as one, nats_server.connect(answering) as other:
        await other.serve(subject, answer)

        assert await one.request(subject, b"x", timeout_s=SOON_S) == b"x"


async def test_a_closed_subscription_hears_nothing_more(nats_server: NatsServer) -> None:
    """After close, a request finds nobody."""

    async def answer(payload: bytes, traceparent: str) -> bytes:
        return b""

    async with nats_server.connect("scheduler") as scheduler:
        subscription = await scheduler.serve("control.closing", answer)
        await subscription.close()
        async with nats_server.connect("gateway") as gateway:
            with pytest.raises(NoResponder):
                await gateway.request("control.closing", b"", timeout_s=SOON_S)


async def test_every_service_answers_status(nats_server: NatsServer) -> None:
    """The supervisor may ask, each service may answer, all under their own permissions."""
    answered = set()
    for service in sorted(set(flow.PERMISSIONS) - {"supervisor"}):
        async with nats_server.connect(service) as bus, nats_server.connect("supervisor") as supervisor:
            await serve_status(bus, lambda name=service: ServiceStatus(name, "i", 1, 0, True, ""))  # type: ignore[misc]

            answer = await supervisor.request(flow.STATUS_SUBJECT, b"", timeout_s=SOON_S)

            answered.add(codec.decode(ServiceStatus, answer).service)
            assert not bus.counts and not supervisor.counts
    assert answered == set(flow.PERMISSIONS) - {"supervisor"}


@pytest.mark.parametrize("service", sorted(flow.PERMISSIONS))
async def test_a_service_may_not_touch_what_is_not_its_own(nats_server: NatsServer, service: str) -> None:
    """Other inboxes, other parts' subjects and the broker's administration are refused."""
    others = next(name for name in flow.PERMISSIONS if name != service)
    async with nats_server.connect(service) as bus:
        for subject in (f"{flow.inbox_prefix(others)}.>", ">", "sequences.*.*", "requests.*"):
            await bus.subscribe(subject, lambda payload, traceparent: None)
        if service != "scheduler":
            await bus.publish("$JS.API.STREAM.DELETE.requests", b"")
        if service not in ("prefill_worker", "decode_worker"):
            await bus.publish(flow.tokens_subject("g"), b"")
        await bus.subscribe(flow.STATUS_SUBJECT, lambda payload, traceparent: None)  # a round trip after the refusals

        expected = 4 + (service != "scheduler") + (service not in ("prefill_worker", "decode_worker"))
        assert bus.counts["permission_refused"] == expected


async def test_a_wrong_password_is_a_config_error(nats_server: NatsServer) -> None:
    """Starting again would not help, so the process must stop."""
    with pytest.raises(ConfigError):
        async with Bus.connect(nats_server.url, service="gateway", user="gateway", password="wrong"):
            pass


async def test_no_broker_fails_within_seconds() -> None:
    """The first connect gives up; only later ones go on for ever."""
    started_s = time.monotonic()
    with pytest.raises(Unavailable):
        async with Bus.connect(f"nats://127.0.0.1:{free_port()}", service="gateway", user="", password=""):
            pass
    assert time.monotonic() - started_s < SOON_S


async def test_any_error_that_the_broker_reports_ends_in_a_reconnect(own_nats_server: NatsServer) -> None:
    """A connection that the broker ended with an error of its own is opened again, subscriptions and all."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    async with own_nats_server.connect("gateway") as gateway, own_nats_server.connect(ADMIN) as admin:
        await gateway.subscribe("tokens.g", lambda payload, traceparent: arrived.put_nowait(payload))

        gateway._client._transport.write(b"NONSENSE\r\n")  # type: ignore[union-attr]

        async with asyncio.timeout(SOON_S):
            while gateway.connected:
                await asyncio.sleep(0)
            while arrived.empty():
                await admin.publish("tokens.g", b"frame")
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("turns", range(6))
async def test_a_bus_that_is_reconnecting_closes_like_any_other(nats_server: NatsServer, turns: int) -> None:
    """However far the loss of its connection has been noticed when the service ends."""
    async with nats_server.connect("gateway") as gateway:
        await gateway._client._process_op_err(ConnectionResetError())
        for _ in range(turns):
            await asyncio.sleep(0)


@pytest.mark.parametrize("hears", ["_process_pong", "_request_sub_callback"])
async def test_who_is_cancelled_in_the_round_of_the_answer_ends(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, hears: str
) -> None:
    """A supervisor whose gateway failed meanwhile asked its services on, for five minutes."""
    async with nats_server.connect("gateway") as gateway:
        hear = getattr(gateway._client, hears)
        asked: list[asyncio.Task[None]] = []

        async def hear_and_cancel(*answer: object) -> None:
            await hear(*answer)
            asked[0].cancel()

        async def ask_for_ever() -> None:
            while True:
                subscription = await gateway.subscribe("tokens.g", lambda payload, traceparent: None)
                await subscription.close()
                with suppress(NoResponder):
                    await gateway.request(flow.control_subject("none"), b"", timeout_s=SOON_S)

        with monkeypatch.context() as patched:
            patched.setattr(gateway._client, hears, hear_and_cancel)
            asked.append(asyncio.create_task(ask_for_ever()))
            await asyncio.wait(asked, timeout=SOON_S)

        assert asked[0].cancelled()
