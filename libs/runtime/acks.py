"""Acknowledgements of a work queue's messages, said again when the connection came back.

Nobody confirms them, and a broker that dies, or a connection that breaks, takes the last ones along. A message whose
ack is lost stays in its queue for the ack wait, which may be hours.
"""

from collections import deque
from contextlib import suppress

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

DOUBTED = 1024  # more than are said until a dead connection is noticed


class Acks:
    """Of one consumer. One that was kept may be said again: it changes nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said = deque[tuple[int, str]](maxlen=DOUBTED)  # the message's number in its stream, where it is acked

    async def say(self, message: Msg) -> None:
        self._said.append((message.metadata.sequence.stream, message.reply))
        await self._publish(message.reply)

    async def repeat(self, delivered: int) -> None:
        """`delivered` is the number of the last message that the consumer was given, as the broker knows it.

        Later ones were given by a store that is lost: their numbers mean other messages now.
        """
        self._said = deque([said for said in self._said if said[0] <= delivered], DOUBTED)
        for _, subject in tuple(self._said):
            await self._publish(subject)

    async def _publish(self, subject: str) -> None:
        with suppress(nats.errors.Error):
            await self._client.publish(subject)
