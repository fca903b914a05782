"""The trace ring: what was put is there afterwards, in bounded space, and a disk that fails harms nobody."""

import os
from pathlib import Path

import pytest

from libs.contracts.trace_records import Arrived, Head, Steps
from libs.runtime import ring as ring_module
from libs.runtime.ring import OFF, SEGMENTS, Ring, open_ring, read_ring


def record(number: int) -> Arrived:
    return Arrived(f"request-{number}", number, 7)


async def test_what_was_put_is_read_back_in_its_order(tmp_path: Path) -> None:
    """Through the files of two lives, each headed by who wrote it."""
    for life in range(2):
        async with open_ring(str(tmp_path), "gateway", f"gateway-{life}") as ring:
            for number in range(3):
                ring.put(record(10 * life + number))
            ring.put(Steps(5, ("a",), (1,), (1,), [1, 2]))

    (first, records), (second, more) = read_ring(tmp_path)

    assert (first.service, first.instance, second.instance) == ("gateway", "gateway-0", "gateway-1")
    assert records == [record(0), record(1), record(2), Steps(5, ("a",), (1,), (1,), [1, 2])]
    assert more[:3] == [record(10), record(11), record(12)]
    assert first.pid == os.getpid()


async def test_a_ring_keeps_the_newest_records_in_bounded_space(tmp_path: Path) -> None:
    """Whole segments go, the oldest first; what is left reads from a head on."""
    limit_bytes = 8 * SEGMENTS
    for number in range(20):
        async with open_ring(str(tmp_path), "gateway", "g", limit_bytes=limit_bytes) as ring:
            ring.put(record(number))

    kept = [records for _, records in read_ring(tmp_path)]

    assert kept == [[record(number)] for number in range(20 - SEGMENTS, 20)]


async def test_a_torn_record_ends_its_segment(tmp_path: Path) -> None:
    """A process that was killed while it wrote: all before that is read."""
    async with open_ring(str(tmp_path), "gateway", "g") as ring:
        ring.put(record(1))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b"\xff\x00\x00\x00half")

    ((_, records),) = read_ring(tmp_path)

    assert records == [record(1)]


async def test_a_dead_disk_costs_records_and_nothing_else(tmp_path: Path) -> None:
    """Neither the block nor a put fails; what was lost is counted."""
    (tmp_path / "file").write_bytes(b"")

    async with open_ring(str(tmp_path / "file" / "ring"), "gateway", "g") as ring:
        ring.put(record(1))

    assert ring.dropped == 1


def test_records_that_find_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that hangs on its disk must not fill the memory."""
    monkeypatch.setattr(ring_module, "MOST_PENDING", 2)
    ring = Ring(lambda: None)

    for number in range(5):
        ring.put(record(number))

    assert (ring.take(), ring.dropped) == ([record(0), record(1)], 3)


def test_the_writer_is_woken_by_the_first_record_alone() -> None:
    """Those that follow travel with it: a put is an append."""
    woken: list[int] = []
    ring = Ring(lambda: woken.append(1))

    woken_after = []
    for number in range(3):
        ring.put(record(number))
        woken_after.append(len(woken))

    assert woken_after == [1, 1, 1]
    assert len(ring.take()) == 3


async def test_without_a_directory_nothing_is_kept() -> None:
    """Off is a ring that forgets."""
    async with open_ring("", "gateway", "g") as ring:
        ring.put(record(1))

    assert ring is OFF
    assert not ring.is_on
    assert ring.take() == []


def test_a_directory_that_is_not_there_has_no_records(tmp_path: Path) -> None:
    """A service that never wrote."""
    assert list(read_ring(tmp_path / "none")) == []
    assert Head("s", "i", 1, "b", 0, 0).service == "s"
