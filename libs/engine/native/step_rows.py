"""The rows of a step in the form that the kernels take, and their answers back: no allocation grows with use."""

import ctypes
from array import array
from collections.abc import Sequence
from typing import Final

from kernels.native.structs import HrRow
from libs.contracts.kv_layout import blocks_for
from libs.engine.rows import Sampled, SampleSpec, StepRow

FIRST_ROWS: Final = 64
INT32_BYTES: Final = 4
KEY_MASK: Final = (1 << 64) - 1
NOT_FINITE: Final = Sampled(token_id=-1, logprob=None, is_nan=True)


class StepRows:
    """Filled before a step, read after it; what it points to lives until it is filled again."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._ids = self._tables = self._banned = array("i")
        self._grow(FIRST_ROWS)

    def fill(self, rows: Sequence[StepRow]) -> None:
        """Take in the rows of a step, at least one, each with at least one token and a table that covers it."""
        if len(rows) > len(self._rows):
            self._grow(2 * len(rows))
        self._ids, self._tables, self._banned = ids, tables, banned = array("i"), array("i"), array("i")
        for row in rows:
            ids.extend(row.token_ids)
            tables.extend(row.block_table[: self._used(row)])
            if row.sample is not None:
                banned.extend(row.sample.banned_ids)
        start, table, ban = 0, tables.buffer_info()[0], banned.buffer_info()[0]
        for row, out in zip(rows, self._rows, strict=False):
            used, tokens, sample = self._used(row), len(row.token_ids), row.sample
            assert tokens and used <= len(row.block_table), "a row has tokens and its block table covers them"
            out.start, out.tokens, out.base, out.table = start, tokens, row.base, table
            start += tokens
            table += INT32_BYTES * used
            out.draws = sample is not None
            if sample is not None:
                _fill_sampling(out, sample, ban)
                ban += INT32_BYTES * len(sample.banned_ids)

    def _used(self, row: StepRow) -> int:
        return blocks_for(row.base + len(row.token_ids), self._block_tokens)

    @property
    def ids_address(self) -> int:
        return self._ids.buffer_info()[0]

    @property
    def tokens(self) -> int:
        return len(self._ids)

    @property
    def rows_address(self) -> int:
        return self._address

    def results(self, rows: Sequence[StepRow]) -> list[Sampled | None]:
        """What the kernels wrote, in the order of the rows."""
        return [_result(out, row.sample) for row, out in zip(rows, self._rows, strict=False)]

    def _grow(self, count: int) -> None:
        self._memory = (HrRow * count)()
        self._address = ctypes.addressof(self._memory)
        self._rows = list(self._memory)  # one view a row, made once


def _fill_sampling(out: HrRow, spec: SampleSpec, banned_address: int) -> None:
    params = spec.params
    out.temperature, out.min_p, out.top_p, out.top_k = params.temperature, params.min_p, params.top_p, params.top_k
    out.position, out.key = spec.position, (params.seed + spec.choice) & KEY_MASK
    out.banned, out.banned_count = banned_address, len(spec.banned_ids)
    out.wants_logprob = params.logprobs >= 0


def _result(out: HrRow, spec: SampleSpec | None) -> Sampled | None:
    if out.is_nan:
        return NOT_FINITE
    if spec is None:
        return None
    return Sampled(out.token, out.logprob if spec.params.logprobs >= 0 else None, False)
