"""Who stands by follows a leader that is gone or silent, and nobody else."""

import asyncio
from typing import cast

import pytest

from libs.contracts import codec, flow
from libs.contracts.errors import Fenced
from libs.contracts.messages import CellRecord
from libs.runtime.cells import CellDirectory
from services.scheduler.standby import GONE_S, Standby
from services.scheduler.state import Policy, State
from services.scheduler.status import cell_status
from tests.fakes.bus import FakeBus

ANSWER = codec.encode(cell_status(State(Policy("c0", "m"), 3)))


class Directory:
    """Of one cell, whose term the test sets."""

    def __init__(self) -> None:
        self.term = self.stored = 3  # as it is known here, and at the broker
        self.changed = asyncio.Event()

    def get(self, model: str) -> tuple[CellRecord, ...]:
        return (CellRecord(model, "c0", self.term, "s", "h:1", 16, "d", 100),)

    def refresh_soon(self) -> None:
        self.term = self.stored
        self.changed.set()
        self.changed = asyncio.Event()


def standby(bus: FakeBus, directory: Directory) -> Standby:
    return Standby(bus.as_bus(), cast(CellDirectory, directory), "m", "c0")


async def test_where_nobody_listens_it_leads_at_once() -> None:
    """A restart waits for nothing."""
    watching = standby(FakeBus(), Directory())
    async with asyncio.timeout(GONE_S / 2):
        assert await watching.wait_for_vacancy() == 3
    assert not watching.is_standing_by


async def test_it_waits_for_as_long_as_the_leader_answers() -> None:
    """And follows soon after it is gone; while the broker is away nobody is."""
    bus = FakeBus()

    async def lead(payload: bytes, traceparent: str) -> bytes:
        return ANSWER

    leading = await bus.serve(flow.control_subject("c0"), lead)
    watching = standby(bus, Directory())
    waiting = asyncio.create_task(watching.wait_for_vacancy())
    await asyncio.wait((waiting,), timeout=2 * GONE_S)
    assert watching.is_standing_by and not waiting.done()
    bus.connected = False
    await leading.close()
    await asyncio.wait((waiting,), timeout=2 * GONE_S)
    assert not waiting.done()
    bus.connected = True
    async with asyncio.timeout(4 * GONE_S):
        assert await waiting == 3


async def test_a_leader_ends_when_another_leads() -> None:
    """It learns that from the directory."""
    directory = Directory()
    following = asyncio.create_task(standby(FakeBus(), directory).follow(3))
    await asyncio.wait((following,), timeout=0.05)
    assert not following.done()
    directory.term = 4
    directory.changed.set()
    with pytest.raises(Fenced):
        await following


async def test_a_leader_that_missed_its_successor_finds_it_when_told() -> None:
    """Somebody names a higher term: the directory is read again, and what it says counts, not who said so."""
    directory = Directory()
    leading = standby(FakeBus(), directory)
    following = asyncio.create_task(leading.follow(3))
    leading.look()
    await asyncio.sleep(0)
    assert not following.done()
    directory.stored = 4
    leading.look()
    with pytest.raises(Fenced):
        await asyncio.wait_for(following, GONE_S)
