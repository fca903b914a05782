"""Tells a gateway's silence from the broker's: while the broker is away nobody is heard, and nobody dies of that."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from libs.contracts.errors import Unavailable
from libs.contracts.messages import Alive
from libs.runtime.bus import Bus
from libs.runtime.logs import get_logger
from services.scheduler.events import Arrived, Event
from services.scheduler.state import State

INTERVAL_S = 0.2
ECHO_S = 0.3  # with the interval less than what is left of a gateway's second of silence after its last beat
RECONNECT_S = 2.5  # how long a gateway may take to be heard again: its longest pause, a dial, and a beat

log = get_logger("scheduler")


class BrokerWatch:
    """Has the broker echo our own words while gateways have requests here; without an echo it vouches for them all."""

    def __init__(self, bus: Bus, state: State, post: Callable[[Event], None]) -> None:
        self._bus, self._state, self._post = bus, state, post
        self._occupied, self._heard = asyncio.Event(), asyncio.Event()
        self._vouched_until_s = float("-inf")

    def post(self, event: Event) -> None:
        """Pass an event on; one that brings a request brings a gateway that could be lost."""
        self._post(event)
        if isinstance(event, Arrived):
            self._occupied.set()

    async def run(self) -> NoReturn:
        inbox = self._bus.new_inbox()
        await self._bus.subscribe(inbox, lambda payload, traceparent: self._heard.set())
        while True:
            await self._occupied.wait()
            await asyncio.sleep(INTERVAL_S)
            if not self._state.gateways:
                self._occupied.clear()
                continue
            self._vouch(is_away=not await self._echoes(inbox))

    async def _echoes(self, inbox: str) -> bool:
        self._heard.clear()
        try:
            await self._bus.publish(inbox, b"")
            async with asyncio.timeout(ECHO_S):
                await self._heard.wait()
        except (Unavailable, TimeoutError):
            return False
        return self._bus.connected

    def _vouch(self, *, is_away: bool) -> None:
        now_s = asyncio.get_running_loop().time()
        if is_away:
            if now_s >= self._vouched_until_s:
                log.warning("broker_silent", gateways=len(self._state.gateways))
            self._vouched_until_s = now_s + RECONNECT_S
        if now_s < self._vouched_until_s:
            for gateway in self._state.gateways:
                self._post(Alive(gateway))
