"""Measure a standing one-message pull on JetStream: latency, idle CPU, and what a broker's kill -9 does to it."""

import asyncio
import contextlib
import random
import tempfile
import time
from pathlib import Path

from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

from bench.spikes.measure import free_port, idle_percent, quantiles_ms
from bench.spikes.nats_process import nats_server
from bench.spikes.standing_pull import HEARTBEAT_S, StandingPull, connect

STREAM, DURABLE, SUBJECT, PROBE = "requests", "tokenizer", "requests.tiny", "probe"
MESSAGES, GAP_S = 1000, 0.020


async def receive(pull: StandingPull, arrived: asyncio.Queue[tuple[str, float]]) -> None:
    """Ack each message and hand on its body and the moment of arrival."""
    async for message in pull.messages():
        arrived.put_nowait((message.data.decode(), time.perf_counter()))
        await message.ack()


async def random_gaps(publisher: Client, arrived: asyncio.Queue[tuple[str, float]]) -> None:
    """Publish at random gaps and compare what came with what was sent."""
    js, sent_s = publisher.jetstream(), {}
    for index in range(MESSAGES):
        sent_s[str(index)] = time.perf_counter()
        await js.publish(SUBJECT, str(index).encode())
        await asyncio.sleep(random.uniform(0, GAP_S))
    await asyncio.sleep(0.5)
    came = [arrived.get_nowait() for _ in range(arrived.qsize())]
    samples_s = [at_s - sent_s[body] for body, at_s in came]
    print(f"pull: {quantiles_ms(samples_s)}; sent {len(sent_s)}, distinct {len({body for body, _ in came})}")


async def kill_broker(port: int, store: Path, arrived: asyncio.Queue[tuple[str, float]], pull: StandingPull) -> None:
    """Restart the broker on the killed one's store and send probes until one comes through the pull."""
    started_s, renewals_before = time.perf_counter(), len(pull.renewals)
    async with nats_server(port, store) as server:
        ready_s = time.perf_counter()
        prober = await connect(f"nats://127.0.0.1:{port}", limit_s=5)
        await prober.jetstream().publish(SUBJECT, PROBE.encode())
        published_s = time.perf_counter()
        body, at_s = await asyncio.wait_for(arrived.get(), 30)
        ready_ms, stored_ms = (ready_s - started_s) * 1e3, (published_s - ready_s) * 1e3
        print(f"after kill -9: broker ready after {ready_ms:.0f} ms, probe stored {stored_ms:.0f} ms later,")
        print(f"  {body} received {(at_s - published_s) * 1e3:.0f} ms after that; {pull.renewals[renewals_before:]}")
        client, broker = await asyncio.gather(idle_percent(), idle_percent(server.pid))
        print(f"idle pull with {HEARTBEAT_S} s heartbeat: client {client:.2f} %, broker {broker:.2f} % of a core")
        await prober.close()


async def fail_fast(port: int) -> None:
    """Connect where nobody listens."""
    started_s = time.perf_counter()
    try:
        await connect(f"nats://127.0.0.1:{port}", limit_s=0.5)
    except TimeoutError as error:
        print(f"first connect to nobody: {type(error).__name__} after {time.perf_counter() - started_s:.2f} s")


async def main() -> None:
    """Run every part on one broker port and one store."""
    await fail_fast(free_port())
    port, arrived = free_port(), asyncio.Queue[tuple[str, float]]()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        async with nats_server(port, store) as server:

            async def on_reconnect() -> None:
                await pull.renew()

            client = await connect(f"nats://127.0.0.1:{port}", limit_s=5, on_reconnect=on_reconnect)
            pull = StandingPull(client, STREAM, DURABLE)
            js = client.jetstream()
            await js.add_stream(StreamConfig(STREAM, subjects=["requests.*"], retention=RetentionPolicy.WORK_QUEUE))
            await js.add_consumer(
                STREAM, ConsumerConfig(durable_name=DURABLE, ack_policy=AckPolicy.EXPLICIT, ack_wait=2)
            )
            receiving = asyncio.create_task(receive(pull, arrived))
            await random_gaps(client, arrived)
            server.kill()
        await kill_broker(port, store, arrived, pull)
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiving
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
