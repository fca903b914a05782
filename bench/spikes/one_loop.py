"""Run granian, nats-py and a grpc.aio server in one event loop; measure idle CPU and a SIGTERM with a stream open."""

import asyncio
import contextlib
import itertools
import signal
import sys
import tempfile
import time
from pathlib import Path

import grpc
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from bench.spikes.granian_disconnect import Message, Receive, Send
from bench.spikes.grpc_stream import Echo
from bench.spikes.measure import free_port, idle_percent
from bench.spikes.nats_process import nats_server
from bench.spikes.raw_http import RawClient
from bench.spikes.standing_pull import connect


async def app(_scope: Message, receive: Receive, send: Send) -> None:
    """Start a stream and hold it until the client leaves or the server stops."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass
    print("the app heard http.disconnect", flush=True)


async def service(http_port: int, grpc_port: int, nats_port: int) -> None:
    """The process under trial: three servers, one loop, stopped by SIGTERM in the reverse order of their start."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    bus = await connect(f"nats://127.0.0.1:{nats_port}", limit_s=2)
    rpc = grpc.aio.server()
    rpc.add_generic_rpc_handlers((Echo(),))
    rpc.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await rpc.start()
    http = Server(app, port=http_port, interface=Interfaces.ASGINL, http=HTTPModes.auto, log_enabled=False)
    serving = asyncio.create_task(http.serve())
    await stop.wait()
    marks = [time.perf_counter()]
    http.stop()  # type: ignore[no-untyped-call]
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(serving, 1)
    marks.append(time.perf_counter())
    await rpc.stop(0.2)
    marks.append(time.perf_counter())
    await bus.close()
    marks.append(time.perf_counter())
    steps = [f"{(after - before) * 1e3:.0f} ms" for before, after in itertools.pairwise(marks)]
    print("stopped http, grpc, nats in", ", ".join(steps), "; tasks left:", len(asyncio.all_tasks()) - 1, flush=True)


async def main() -> None:
    """Start the broker and the service, idle, open a stream, send SIGTERM, look at what is left."""
    http_port, grpc_port, nats_port = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        async with nats_server(nats_port, Path(folder)):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.spikes.one_loop", *map(str, (http_port, grpc_port, nats_port))
            )
            await asyncio.sleep(2)
            print(f"idle: {await idle_percent(process.pid):.2f} % of a core")
            print(f"threads: {len(list(Path(f'/proc/{process.pid}/task').iterdir()))}")
            for streams_open in (False, True):
                if streams_open:
                    process = await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "bench.spikes.one_loop", *map(str, (http_port, grpc_port, nats_port))
                    )
                    await asyncio.sleep(2)
                    client = RawClient(http_port, http2=False)
                    client.post("/")
                    client.wait_head()
                start_s = time.perf_counter()
                process.send_signal(signal.SIGTERM)
                code = await asyncio.wait_for(process.wait(), 20)
                print(
                    f"SIGTERM, stream open {streams_open}: exit code {code} after {time.perf_counter() - start_s:.2f} s"
                )


if __name__ == "__main__":
    asyncio.run(service(*map(int, sys.argv[1:])) if len(sys.argv) > 1 else main())
