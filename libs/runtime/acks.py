"""Acknowledgements of a work queue's messages, said again when the connection came back.

Nobody confirms them, and a broker that dies, or a connection that breaks, takes the last ones along. A message whose
ack is lost stays in its queue for the ack wait, which may be hours.
"""

from collections import deque
from contextlib import suppress

import nats.errors
from nats.aio.client import Client

DOUBTED = 1024  # more than are said until a dead connection is noticed


class Acks:
    """Of one consumer. One that was kept may be said again: it changes nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said = deque[str](maxlen=DOUBTED)

    async def say(self, subject: str) -> None:
        """`subject` is where its message wants it."""
        self._said.append(subject)
        await self._publish(subject)

    async def repeat(self) -> None:
        for subject in tuple(self._said):
            await self._publish(subject)

    def forget(self) -> None:
        """The consumer is a new one: its numbers mean other messages."""
        self._said.clear()

    async def _publish(self, subject: str) -> None:
        with suppress(nats.errors.Error):
            await self._client.publish(subject)
