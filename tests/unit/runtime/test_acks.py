"""Acks that are said again after a reconnect: which, and where."""

from types import SimpleNamespace
from typing import Any, cast

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from libs.runtime.acks import DOUBTED, Acks


class Connection:
    """Keeps what is published, unless it is away."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self.is_away = False

    async def publish(self, subject: str) -> None:
        if self.is_away:
            raise nats.errors.OutboundBufferLimitError
        self.published.append(subject)

    def taken(self) -> list[str]:
        published, self.published = self.published, []
        return published


def message(number: int) -> Msg:
    """The one of this number in its stream."""
    sequence = SimpleNamespace(stream=number)
    return cast(Msg, SimpleNamespace(reply=f"ack.{number}", metadata=SimpleNamespace(sequence=sequence)))


def acks_of(connection: Connection) -> Acks:
    return Acks(cast(Client, cast(Any, connection)))


async def test_acks_are_said_at_once_and_again() -> None:
    """Also those for which the connection had no room; the oldest are forgotten."""
    connection = Connection()
    acks = acks_of(connection)
    await acks.say(message(1))
    connection.is_away = True
    await acks.say(message(2))
    connection.is_away = False
    assert connection.taken() == ["ack.1"]

    for _ in range(2):
        await acks.repeat(9)
        assert connection.taken() == ["ack.1", "ack.2"]
    for number in range(3, 3 + DOUBTED):
        await acks.say(message(number))
    connection.taken()
    await acks.repeat(3 + DOUBTED)
    assert connection.taken()[0] == "ack.3"


async def test_numbers_of_a_lost_store_are_not_said_again() -> None:
    """Not even when its successor has given out as many: they are other messages."""
    connection = Connection()
    acks = acks_of(connection)
    for number in (1, 7):
        await acks.say(message(number))
    connection.taken()

    await acks.repeat(3)
    assert connection.taken() == ["ack.1"]
    await acks.repeat(8)
    assert connection.taken() == ["ack.1"]
