"""Find out whether granian in our event loop tells the app of a client's disconnect and flushes each chunk."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from bench.spikes.measure import free_port, quantiles_ms
from bench.spikes.raw_http import RawClient

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PHASES = ("before_start", "after_start", "after_empty_chunk", "between_chunks", "steady_chunks", "slow_reader")
LEAVINGS = {False: ("fin", "rst", "half_close"), True: ("fin", "rst", "cancel_stream")}
PATIENCE_S = 3.0
SETTLE_S = 0.1
CHUNKS, SLOW_READER_CHUNKS = 200, 1024


async def next_message(receive: Receive) -> Message:
    """What receive() gives, as a coroutine: granian's own awaitable breaks create_task, ensure_future and gather."""
    return await receive()


class ProbeApp:
    """Plain ASGI app: acts out the phase named by the path and notes when it hears of the disconnect."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        self.accepted_bytes = 0
        self.unread_bytes = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        acting = asyncio.create_task(self._act(scope["path"].removeprefix("/"), send))
        watching = asyncio.create_task(next_message(receive))
        await asyncio.wait([acting, watching], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            self.heard.put_nowait((f"receive() → {watching.result()['type']}", time.perf_counter()))
            # A late send shows whether sending to a client that left raises, waits or does nothing.
            await asyncio.sleep(0.1)
            if acting.done() and (error := acting.exception()):
                self.heard.put_nowait((f"send raised {type(error).__name__}", time.perf_counter()))
        for task in (acting, watching):
            task.cancel()
        await asyncio.gather(acting, watching, return_exceptions=True)

    async def _act(self, phase: str, send: Send) -> None:
        if phase != "before_start":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if phase == "after_empty_chunk":
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        if phase in ("before_start", "after_start", "after_empty_chunk"):
            await asyncio.Event().wait()
        self.accepted_bytes = 0
        for _ in range(SLOW_READER_CHUNKS if phase == "slow_reader" else CHUNKS):
            piece = {"slow_reader": bytes(65536), "latency": str(time.perf_counter()).encode()}.get(phase, bytes(200))
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self.accepted_bytes += len(piece)
            await asyncio.sleep({"slow_reader": 0.0, "between_chunks": PATIENCE_S}.get(phase, 0.01))
        if phase != "latency":
            await asyncio.Event().wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def serving(app: Any, port: int) -> AsyncIterator[None]:
    """Serve app on the loopback port inside the running event loop."""
    server = Server(app, port=port, interface=Interfaces.ASGINL, http=HTTPModes.auto, log_enabled=False)
    task = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        await task


def vanish(app: ProbeApp, port: int, phase: str, leaving: str, *, http2: bool) -> float:
    """Reach the phase as a client, then leave; returns the moment of leaving."""
    client = RawClient(port, http2=http2, receive_buffer_bytes=4096 if phase == "slow_reader" else None)
    client.post(f"/{phase}")
    if phase in ("after_empty_chunk", "between_chunks", "steady_chunks"):
        client.wait_head()
    if phase in ("between_chunks", "steady_chunks"):
        next(client.chunks())
    time.sleep(SETTLE_S * (8 if phase == "slow_reader" else 1))
    app.unread_bytes, left_s = app.accepted_bytes, time.perf_counter()
    if leaving in ("cancel_stream", "half_close"):
        client.cancel_stream() if leaving == "cancel_stream" else client.shutdown_write()
        time.sleep(0.5)
    client.close(reset=leaving == "rst")
    return left_s


async def try_leaving(app: ProbeApp, port: int, phase: str, leaving: str, *, http2: bool) -> str:
    """One trial: everything the app heard within the patience, in milliseconds after the client left."""
    left_s = await asyncio.to_thread(vanish, app, port, phase, leaving, http2=http2)
    await asyncio.sleep(0.5)
    heard = [app.heard.get_nowait() for _ in range(app.heard.qsize())]
    return "; ".join(f"{what} after {(at_s - left_s) * 1e3:.1f} ms" for what, at_s in heard) or "NOTHING"


def chunk_latencies_s(port: int, *, http2: bool) -> list[float]:
    """Seconds from the app's send of each chunk to its arrival here."""
    client = RawClient(port, http2=http2)
    client.post("/latency")
    client.wait_head()
    return [time.perf_counter() - float(chunk) for chunk in client.chunks()]


async def main() -> None:
    """Try every phase and every way of leaving on both protocols, then the latency of chunks."""
    app, port = ProbeApp(), free_port()
    async with serving(app, port):
        await asyncio.sleep(0.3)
        for http2, phase in itertools.product((False, True), PHASES):
            for leaving in LEAVINGS[http2]:
                heard = await try_leaving(app, port, phase, leaving, http2=http2)
                taken = f"; send took {app.unread_bytes} bytes unread" if phase == "slow_reader" else ""
                print(f"{'HTTP/2' if http2 else 'HTTP/1.1'} {phase} {leaving}: {heard}{taken}", flush=True)
        for http2 in (False, True):
            samples_s = await asyncio.to_thread(chunk_latencies_s, port, http2=http2)
            print(f"{'HTTP/2' if http2 else 'HTTP/1.1'} chunk: {quantiles_ms(samples_s)}, {len(samples_s)} of {CHUNKS}")


if __name__ == "__main__":
    asyncio.run(main())
