"""A worker process on a fake engine, to be killed and frozen: the real service around it, a pool in a mapped file.

Run as `python -m tests.integration.fake_worker SETTINGS`, settings as one JSON object.
"""

import asyncio
import json
import mmap
import os
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from libs.contracts import flow
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import CellRecord
from libs.engine.rows import StepRow
from libs.engine.worker.config import WorkerConfig
from libs.engine.worker.link_client import CellLeader
from libs.engine.worker.serve import Role, Worker
from libs.runtime.bus import Bus
from tests.fakes.engine import FakeEngine, FakePool, fake_loaded

TOKEN = "link-token"
BLOCKS = 64
ROLES = {
    "prefill": Role("prefill_worker", "prefill", flow.PREFILL),
    "decode": Role("decode_worker", "decode", flow.DECODE),
}


class MappedPool(FakePool):
    """What one process wrote is there for the others, and when it is dead."""

    def __init__(self, path: Path, blocks: int = BLOCKS, block_tokens: int = 16) -> None:
        self.blocks, self.block_tokens = blocks, block_tokens
        size_bytes = 4 * blocks * (1 + block_tokens)
        with path.open("a+b") as file:
            file.truncate(size_bytes)  # whoever comes first, or at once: nothing written is lost
            words = memoryview(mmap.mmap(file.fileno(), size_bytes)).cast("I")
        self.fill_counts_N, self.ids_NT = words[:blocks], words[blocks:]  # type: ignore[assignment]

    def write(self, block: int, offset: int, ids: Sequence[int]) -> None:
        for index, token in enumerate(ids, block * self.block_tokens + offset):
            self.ids_NT[index] = token

    def read(self, block_table: Sequence[int], tokens: int) -> "array[int]":
        size = self.block_tokens
        blocks = block_table[: blocks_for(tokens, size)]
        return array("I", [token for block in blocks for token in self.ids_NT[block * size : (block + 1) * size]])[
            :tokens
        ]


class LeaderVia(CellLeader):
    """Dials another address than the cell's record names: that of a proxy."""

    via = ""

    async def of_term(self, term: int) -> CellRecord:
        record = await super().of_term(term)
        return replace(record, address=self.via or record.address)


async def main(settings: dict[str, Any]) -> None:
    role, pool = ROLES[settings["role"]], MappedPool(Path(settings["pool"]), int(settings.get("blocks", BLOCKS)))
    step_s = float(settings["step_s"])
    deadly = settings.get("deadly_ids")

    def before_step(rows: Sequence[StepRow]) -> None:
        time.sleep(step_s)
        if deadly and any(deadly == list(pair) for row in rows for pair in pairwise(row.token_ids)):
            os._exit(1)

    engine = FakeEngine(pool, before_step=before_step)
    loaded = replace(fake_loaded(pool, engine), pool_name=settings["pool"])
    config = WorkerConfig(
        model=settings["model"],
        model_dir=Path(settings["pool"]).parent,
        pool="unused",
        link_token=SecretStr(TOKEN),
        instance=settings["instance"],
        incarnation=settings["incarnation"],
    )
    async with Bus.connect(
        settings["nats_url"], service=role.service, user=role.service, password=settings["nats_password"]
    ) as bus:
        leader = LeaderVia(await bus.cells(), config.model, config.cell)
        leader.via = settings.get("link_via", "")
        worker = Worker(config, role, loaded, bus, leader)
        await worker.run(asyncio.Event(), 1.0)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
