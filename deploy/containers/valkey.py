"""Runs Valkey in its container and loads the function library whenever it starts: it keeps nothing over its end."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

from deploy.index_functions import load_functions
from libs.runtime.process import stop_signal
from libs.runtime.status import READY, beat

CONFIG: Final = Path("/run/secrets/valkey.conf")
PASSWORD: Final = Path("/run/secrets/index_supervisor")
URL: Final = "redis://127.0.0.1:6379"
HEALTH: Final = Path("/tmp/health")
LOAD_TIMEOUT_S: Final = 30.0


async def main() -> int:
    """Until the server ends or this process is told to stop; the server's exit code."""
    server = await asyncio.create_subprocess_exec("valkey-server", str(CONFIG))
    ended = asyncio.create_task(server.wait())
    async with stop_signal() as stop:
        loading = asyncio.create_task(load_functions(URL, PASSWORD.read_text(encoding="utf-8")))
        await asyncio.wait((ended, loading), timeout=LOAD_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and loading.exception() is None:
            beat(HEALTH, lambda: READY)
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            server.send_signal(signal.SIGTERM)
        return await ended


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
