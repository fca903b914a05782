"""Loads every function of ours into a Valkey that has just started."""

import asyncio
from contextlib import suppress
from typing import Final

from libs.contracts.errors import Unavailable
from libs.runtime.prefix_library import LIBRARY
from libs.runtime.quota_library import QUOTA_LIBRARY
from libs.runtime.valkey import load_libraries

LOADER: Final = "supervisor"  # the user that may
LOAD_INTERVAL_S: Final = 0.02


async def load_once(url: str, password: str) -> None:
    """Raises Unavailable."""
    await load_libraries(url, LIBRARY, QUOTA_LIBRARY, user=LOADER, password=password)


async def load_functions(url: str, password: str) -> None:
    """Load the libraries as soon as the server answers; it persists nothing, so this follows every start.

    The caller limits the time.
    """
    while True:
        with suppress(Unavailable):
            await load_once(url, password)
            return
        await asyncio.sleep(LOAD_INTERVAL_S)
