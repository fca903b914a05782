"""Process life: from main to an exit code, and one stop signal as an event to wait for."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from libs.contracts.errors import ConfigError, HeadraceError
from libs.runtime.logs import setup_logs

EXIT_CONFIG = 2  # do not start again: the settings or the deployment must change
EXIT_FAILED = 1
EXIT_IMPATIENT = 130


def leave_at_once(error: HeadraceError) -> NoReturn:
    """End without any clean-up: another has taken this process's place, and what it would still say counts no more."""
    sys.stderr.write(f"{error.code}: {' '.join(error.message.split())}\n")
    sys.stderr.flush()
    os._exit(EXIT_FAILED)


@asynccontextmanager
async def stop_signal() -> AsyncIterator[asyncio.Event]:
    """Yield an event that the first SIGTERM or SIGINT sets; the second ends the process at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(EXIT_IMPATIENT)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a service's main. A typed error becomes one line on stderr: exit code 2 for ConfigError, else 1."""
    setup_logs()
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        raise SystemExit(EXIT_IMPATIENT) from None
    except HeadraceError as error:
        sys.stderr.write(f"{error.code}: {' '.join(error.message.split())}\n")
        raise SystemExit(EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED) from None
