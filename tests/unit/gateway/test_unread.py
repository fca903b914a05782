"""Clients that do not take what they are sent."""

import asyncio

import pytest

from services.gateway.reply import Message, part
from services.gateway.stream import ClientGone
from services.gateway.unread import while_read


async def test_a_part_that_is_not_taken_in_time_ends_the_response() -> None:
    """Counted from when it was handed over, however many were taken before."""
    taken: list[Message] = []
    begun_s: list[float] = []
    loop = asyncio.get_running_loop()

    async def send(message: Message) -> None:
        taken.append(message)
        if len(taken) == 100:
            begun_s.append(loop.time())
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    with pytest.raises(ClientGone):
        async with while_read(send, 0.05) as sending:
            while True:
                await part(sending, b"x")

    assert len(taken) == 100
    assert 0.05 <= loop.time() - begun_s[0] < 1


async def test_a_client_that_waits_for_us_is_never_given_up() -> None:
    """However long the next part takes to be there: the limit is for what was handed over."""

    async def send(message: Message) -> None:
        """Taken at once."""

    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.call_later(0.05, over.set)

    async with while_read(send, 0.01) as sending:
        await part(sending, b"x")
        await over.wait()
        await part(sending, b"y")


async def test_what_else_times_out_is_not_taken_for_the_client() -> None:
    """Nor does the error of the block change."""

    async def send(message: Message) -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        async with while_read(send, 10) as sending:
            await part(sending, b"x")


async def test_no_timer_is_made_for_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for the whole response."""
    loop = asyncio.get_running_loop()
    made: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *arguments: object, **more: object) -> asyncio.TimerHandle:
        made.append(when)
        return call_at(when, *arguments, **more)  # type: ignore[arg-type]

    async def send(message: Message) -> None:
        """Taken at once."""

    monkeypatch.setattr(loop, "call_at", counted)
    async with while_read(send, 10) as sending:
        for _ in range(100):
            await part(sending, b"x")

    assert len(made) == 1
