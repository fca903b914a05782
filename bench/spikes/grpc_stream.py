"""Measure a bidirectional grpc.aio stream between two processes, beside busy neighbours and idle."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator

import grpc

from bench.spikes.measure import busy_neighbours, cpu_s, free_port, idle_percent, quantiles_ms

MESSAGE_BYTES = 2048
ROUND_TRIPS = 1500
PACE_S = 0.004
METHOD = "/spike.Link/Attach"
OPTIONS = [("grpc.keepalive_time_ms", 10_000), ("grpc.use_local_subchannel_pool", 1)]


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Answers each message of a stream with its own bytes."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        if handler_call_details.method != METHOD:
            return None
        return grpc.stream_stream_rpc_method_handler(self._attach)

    async def _attach(self, _requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]  # the stubs lack it
            await context.write(message)


async def serve(port: int) -> None:
    """Serve until standard input closes, which is when the measuring process is gone."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *OPTIONS])
    server.add_generic_rpc_handlers((Echo(),))
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    await server.start()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0.5)


async def round_trips(call: grpc.aio.StreamStreamCall[bytes, bytes], server_pid: int, label: str) -> None:
    """Send one message at a time and wait for its echo; print latency and CPU per round trip."""
    message = bytes(MESSAGE_BYTES)
    samples_s = []
    client_before_s, server_before_s = cpu_s(), cpu_s(server_pid)
    for _ in range(ROUND_TRIPS):
        start_s = time.perf_counter()
        await call.write(message)
        assert await call.read() == message
        samples_s.append(time.perf_counter() - start_s)
        await asyncio.sleep(PACE_S)
    client_us = (cpu_s() - client_before_s) / ROUND_TRIPS * 1e6
    server_us = (cpu_s(server_pid) - server_before_s) / ROUND_TRIPS * 1e6
    print(f"{label}: {quantiles_ms(samples_s)}; CPU client {client_us:.0f} us, server {server_us:.0f} us a round trip")


async def main() -> None:
    """Start the server process, then measure quiet, loaded and idle."""
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.spikes.grpc_stream", str(port), stdin=asyncio.subprocess.PIPE
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            call = channel.stream_stream(METHOD)(wait_for_ready=True)  # type: ignore[call-arg]  # all optional
            await call.write(b"warm")
            await call.read()
            await round_trips(call, server.pid, "quiet")
            for count in (2, 4):
                with busy_neighbours(count):
                    await round_trips(call, server.pid, f"{count} busy processes")
            client_percent, server_percent = await asyncio.gather(idle_percent(), idle_percent(server.pid))
            print(f"idle stream: client {client_percent:.2f} %, server {server_percent:.2f} % of a core")
            await call.done_writing()
    finally:
        assert server.stdin is not None
        server.stdin.close()
        print(f"server exit code {await server.wait()}")


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])) if len(sys.argv) > 1 else main())
