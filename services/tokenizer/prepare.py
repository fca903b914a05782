"""From a Request to its Sequence and its cell: encoding off the event loop, then one look into the prefix index."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from libs.contracts.errors import DeadlineExceeded, Unavailable
from libs.contracts.messages import CellRecord, Request, Sequence, TokenizeQuery
from libs.contracts.trace_records import Tokenized
from libs.runtime.cells import CellDirectory
from libs.runtime.prefix_index import PrefixIndex
from services.tokenizer.choose import choose_cell, fitting_cells, largest_prompt_tokens, open_cells
from services.tokenizer.encode import Encoder, answer_query, check_length, encode_prompt, prefix_hashes, to_sequence
from services.tokenizer.grammars import Grammars
from services.tokenizer.loads import Loads

T = TypeVar("T")

TERM_PATIENCE_S = 5.0
LONG_PROMPT_BYTES = 64 << 10  # beyond it a prompt is encoded where it holds up no short one


class Threads:
    """Encodes off the event loop (the tokenizer library releases the GIL), long prompts apart from short ones."""

    def __init__(self, short_threads: int) -> None:
        self._short = ThreadPoolExecutor(short_threads, thread_name_prefix="encode")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="encode-long")

    async def run(self, prompt_bytes: int, work: Callable[[], T]) -> T:
        pool = self._long if prompt_bytes > LONG_PROMPT_BYTES else self._short
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, *_: object) -> None:
        """Start nothing more; what is being encoded is finished, for nobody."""
        self._short.shutdown(wait=False, cancel_futures=True)
        self._long.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Prepared:
    sequence: Sequence
    cell: str
    term: int  # of its scheduler when it was chosen
    known_tokens: int  # of the prompt's start, that the index knows in this cell


class Preparing:
    """What preparing needs; one per process."""

    def __init__(
        self,
        encoder: Encoder,
        cells: CellDirectory,
        loads: Loads,
        index: PrefixIndex,
        threads: Threads,
        grammars: Grammars,
    ) -> None:
        self.encoder = encoder
        self._cells, self._loads, self._index = cells, loads, index
        self._threads, self._grammars = threads, grammars

    @property
    def cells(self) -> tuple[CellRecord, ...]:
        """The model's cells that can be given work."""
        return open_cells(self._cells.get(self.encoder.model))

    async def prepare(self, request: Request, prompt_bytes: int, stored_at: datetime, record: Tokenized) -> Prepared:
        """Raises the typed error that the gateway is to be told. Notes in `record` when each part was done."""
        if request.deadline_unix_ms <= time.time_ns() // 1_000_000:
            raise DeadlineExceeded("the request's time was over before its prompt was encoded")
        encoder = self.encoder
        if request.params.grammar is not None:
            grammar = await self._grammars.check(request.params.grammar)
            request = replace(request, params=replace(request.params, grammar=grammar))
            record.grammar_ns = time.monotonic_ns()
        ids = await self._threads.run(prompt_bytes, lambda: _timed_encode(encoder, request, stored_at, record))
        record.awake_ns = time.monotonic_ns()
        serving = await self._serving()
        if not (cells := fitting_cells(serving, len(ids))):
            check_length(request, len(ids), largest_prompt_tokens(serving))
        hashes = await self._hashes(request, prompt_bytes, ids, cells[0])
        record.hashed_ns = time.monotonic_ns()
        known_blocks = await self._index.lookup(hashes)
        chosen = choose_cell(cells, known_blocks, await self._loads.of(cells), len(ids))
        self._loads.sent(chosen.cell)
        if not _same_blocks(chosen, cells[0]):
            hashes = await self._hashes(request, prompt_bytes, ids, chosen)
        record.looked_up_ns = time.monotonic_ns()
        known_tokens = known_blocks.get(chosen.cell, 0) * chosen.block_tokens
        return Prepared(to_sequence(encoder, request, ids, hashes), chosen.cell, chosen.term, known_tokens)

    async def tokenize(self, query: TokenizeQuery) -> tuple[int, ...]:
        """Beside long prompts, so that asking holds up no short one. Raises the typed error that is to be told."""
        encoder, now = self.encoder, datetime.now(UTC)
        return await self._threads.run(LONG_PROMPT_BYTES + 1, lambda: answer_query(encoder, query, now))

    async def _serving(self) -> tuple[CellRecord, ...]:
        """The open cells. One whose scheduler has just begun its term is waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TERM_PATIENCE_S):
                while not self.cells and self._cells.get(self.encoder.model):
                    await self._cells.changed.wait()
        if not (serving := self.cells):
            raise Unavailable(f"no cell serves {self.encoder.model!r} at the moment")
        return serving

    async def _hashes(
        self, request: Request, prompt_bytes: int, ids: tuple[int, ...], cell: CellRecord
    ) -> tuple[bytes, ...]:
        return await self._threads.run(prompt_bytes, lambda: prefix_hashes(self.encoder, request, ids, cell))


def _timed_encode(encoder: Encoder, request: Request, stored_at: datetime, record: Tokenized) -> tuple[int, ...]:
    def rendered() -> None:
        record.rendered_ns = time.monotonic_ns()

    record.begun_ns = record.rendered_ns = time.monotonic_ns()
    ids = encode_prompt(encoder, request, stored_at, rendered)
    record.encoded_ns = time.monotonic_ns()
    return ids


def _same_blocks(one: CellRecord, other: CellRecord) -> bool:
    return (one.block_tokens, one.model_digest) == (other.block_tokens, other.model_digest)
