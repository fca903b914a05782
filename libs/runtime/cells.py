"""The records of cells in a JetStream key-value bucket: claiming a term, and a directory that follows changes.

The bucket's stream republishes each stored record, so a directory hears of it by a plain subscription and an idle one
costs nothing; it reads the whole bucket at the start and whenever the connection came back.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RePublish, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from libs.contracts import codec, flow
from libs.contracts.errors import Fenced, MalformedMessage, Unavailable
from libs.contracts.messages import CellRecord
from libs.runtime.logs import get_logger
from libs.runtime.work_queue import create_stream

STREAM = f"KV_{flow.CELLS_BUCKET}"
KEY_PREFIX = f"$KV.{flow.CELLS_BUCKET}."
CLAIM_TRIES = 50
ERR_WRONG_LAST_SEQUENCE = (10071, 10164)
REFRESH_RETRY_S = 0.5

log = get_logger("cells")


def unix_time_ms() -> int:
    return time.time_ns() // 1_000_000


async def declare(js: JetStreamContext) -> None:
    config = StreamConfig(  # what the NATS tools know as a key-value bucket
        name=STREAM,
        subjects=[f"{KEY_PREFIX}>"],
        storage=StorageType.FILE,
        max_msgs_per_subject=1,
        discard=DiscardPolicy.NEW,
        deny_delete=True,
        allow_rollup_hdrs=True,
        allow_direct=True,
        republish=RePublish(src=f"{KEY_PREFIX}>", dest=flow.CELLS_CHANGED),
    )
    await create_stream(js, config)


async def claim_term(
    js: JetStreamContext, record: CellRecord, after: int | None, *, unix_ms: Callable[[], int] = unix_time_ms
) -> CellRecord:
    """The record as stored, under the next term; what the cell held under the last one it most likely still holds.

    A term is above the last one, and no lower than the time at which it is claimed: also where the bucket was lost, or
    an old copy of it came back, nobody has heard of a higher one.
    """
    for _ in range(CLAIM_TRIES):
        held, revision = await _read(js, record)
        if after is not None and held is not None and held.term > after:
            raise Fenced(f"cell {record.cell} has term {held.term} already")
        claimed = replace(record, term=unix_ms())
        if held is not None:
            term = max(claimed.term, held.term + 1)
            claimed = replace(held, term=term, scheduler=record.scheduler, address=record.address)
        if await _swap(js, claimed, revision):
            return claimed
    raise Unavailable(f"cell {record.cell} is claimed by too many at once")


async def put(js: JetStreamContext, record: CellRecord) -> None:
    for _ in range(CLAIM_TRIES):
        held, revision = await _read(js, record)
        if held is not None and held.term != record.term:
            raise Fenced(f"cell {record.cell} has term {held.term}, not {record.term}")
        if await _swap(js, record, revision):
            return
    raise Unavailable(f"cell {record.cell} is written by too many at once")


async def restore(js: JetStreamContext, record: CellRecord) -> None:
    """Store `record` if the bucket has none of its cell: it was lost with the broker's store."""
    held, revision = await _read(js, record)
    if held is None:
        await _swap(js, record, revision)


def _subject(record: CellRecord) -> str:
    return KEY_PREFIX + flow.cell_key(record.model, record.cell)


async def _read(js: JetStreamContext, record: CellRecord) -> tuple[CellRecord | None, int]:
    """The stored record of the same cell and its revision; None and 0 when there is none."""
    try:
        message = await js.get_last_msg(STREAM, _subject(record))  # from the leader: a direct read may be stale
    except NotFoundError:
        return None, 0
    except nats.errors.Error as error:
        raise Unavailable("cannot read the cell's record") from error
    return codec.decode(CellRecord, message.data or b""), message.seq or 0


async def _swap(js: JetStreamContext, record: CellRecord, revision: int) -> bool:
    """Store `record` if the key's last revision still is `revision`."""
    headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
    try:
        await js.publish(_subject(record), codec.encode(record), headers=headers)
    except APIError as error:
        if error.err_code in ERR_WRONG_LAST_SEQUENCE:
            return False
        raise Unavailable(f"cannot store the cell's record: {error.description}") from error
    except nats.errors.Error as error:
        raise Unavailable("cannot store the cell's record") from error
    return True


class CellDirectory:
    """Every cell's newest record, by model."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._records: dict[str, tuple[int, CellRecord]] = {}  # key → revision, record
        self._changed = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None

    def get(self, model: str) -> tuple[CellRecord, ...]:
        """The records of the cells that serve `model`, by cell name; empty when none does."""
        found = (record for _, record in self._records.values() if record.model == model)
        return tuple(sorted(found, key=lambda record: record.cell))

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that a cell serves, sorted."""
        return tuple(sorted({record.model for _, record in self._records.values()}))

    @property
    def changed(self) -> asyncio.Event:
        """An event that the next change sets: look, and if it does not suit, `await directory.changed.wait()`."""
        return self._changed

    async def on_changed(self, message: Msg) -> None:
        """Take one republished record."""
        headers = message.headers or {}
        self._take(headers.get("Nats-Subject", ""), int(headers.get("Nats-Sequence", "0")), message.data)

    async def refresh(self) -> None:
        """Read the whole bucket. What cannot be read stays as it is: an old record is better than none."""
        try:
            info = await self._js.stream_info(STREAM, subjects_filter=f"{KEY_PREFIX}>")
            for subject in info.state.subjects or {}:
                message = await self._js.get_last_msg(STREAM, subject, direct=True)
                self._take(subject, message.seq or 0, message.data or b"")
        except NotFoundError:
            log.debug("no_cells_bucket")
        except nats.errors.Error as error:
            raise Unavailable("cannot read the directory of cells") from error

    def refresh_soon(self) -> None:
        """Read again in the background, until it succeeds."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_until_done())

    async def _refresh_until_done(self) -> None:
        while True:
            try:
                return await self.refresh()
            except Unavailable:
                await asyncio.sleep(REFRESH_RETRY_S)

    def _take(self, key: str, revision: int, payload: bytes) -> None:
        try:
            record = codec.decode(CellRecord, payload)
        except MalformedMessage:
            log.warning("malformed_cell_record", key=key)
            return
        held_revision, held = self._records.get(key, (0, None))
        if held is not None and revision <= held_revision and record.term <= held.term:
            return
        self._records[key] = (revision, record)
        self._changed.set()
        self._changed = asyncio.Event()
