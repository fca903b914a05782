"""Loads the prefix index's functions into a server that has just started."""

import asyncio
from contextlib import suppress
from typing import Final

from libs.contracts.errors import Unavailable
from libs.runtime.prefix_index import load_library

LOADER: Final = "supervisor"  # the user that may
LOAD_INTERVAL_S: Final = 0.02


async def load_functions(url: str, password: str) -> None:
    """Load the function library as soon as the server answers; it persists nothing, so this follows every start.

    The caller limits the time.
    """
    while True:
        with suppress(Unavailable):
            await load_library(url, user=LOADER, password=password)
            return
        await asyncio.sleep(LOAD_INTERVAL_S)
