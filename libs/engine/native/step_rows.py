"""The rows of a step in the form that the kernels take, and their answers back: no allocation grows with use."""

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kernels.native.structs import HrRow, HrTop
from libs.contracts.kv_layout import blocks_for
from libs.contracts.messages import Candidate
from libs.engine.native.adjust_struct import AdjustStruct
from libs.engine.native.score_structs import ScoreStructs
from libs.engine.rows import Sampled, SampleSpec, StepRow

FIRST_ROWS: Final = 64
INT32_BYTES: Final = 4
KEY_MASK: Final = (1 << 64) - 1
NOT_FINITE: Final = Sampled(token_id=-1, logprob=None, is_nan=True)
NOTHING_DRAWN: Final = Sampled(token_id=-1, logprob=None, is_nan=False)


class StepRows:
    """Filled before a step, read after it; what it points to lives until it is filled again."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._ids = self._tables = array("i")
        self._held: list[object] = []  # forks, candidates and adjustments of the step, which few steps have
        self._special: list[HrRow] = []  # rows of the step that ask for more than a draw
        self._scores: dict[int, ScoreStructs] = {}  # by the identity of the row
        self._grow(FIRST_ROWS)

    def fill(self, rows: Sequence[StepRow]) -> None:
        """Take in the rows of a step, at least one, each with at least one token and a table that covers it."""
        if len(rows) > len(self._rows):
            self._grow(2 * len(rows))
        self._ids, self._tables = ids, tables = array("i"), array("i")
        self._make_plain()
        for row in rows:
            ids.extend(row.token_ids)
            tables.extend(row.block_table[: self._used(row)])
        start, table = 0, tables.buffer_info()[0]
        for row, out in zip(rows, self._rows, strict=False):
            used, tokens, sample = self._used(row), len(row.token_ids), row.sample
            assert tokens and used <= len(row.block_table), "a row has tokens and its block table covers them"
            out.start, out.tokens, out.base, out.table = start, tokens, row.base, table
            start += tokens
            table += INT32_BYTES * used
            out.draws = sample is not None
            if sample is not None:
                self._fill_sampling(out, sample)
                if sample.adjustment is not None or sample.banned_ids:
                    self._special.append(out)
                    out.adjust = self._adjust(sample)
                if row.forks:
                    self._fill_forks(out, sample, row.forks)
            if row.scored_ids:
                self._fill_scores(out, row)

    def _make_plain(self) -> None:
        """Few rows ask for more than a draw: those of the last step are cleared, instead of every row in every step."""
        for out in self._special:
            out.fork_count = out.top_count = out.score_count = 0
            out.adjust = None
        self._special.clear()
        self._held.clear()
        self._scores.clear()

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
        results = [_result(out, row) for row, out in zip(rows, self._rows, strict=False)]
        if self._scores:
            return [self._with_scores(row, result) for row, result in zip(rows, results, strict=True)]
        return results

    def _with_scores(self, row: StepRow, result: Sampled | None) -> Sampled | None:
        scores = self._scores.get(id(row))
        if scores is None or (result is not None and result.is_nan):
            return result
        return replace(result or NOTHING_DRAWN, scores=scores.read(row.base + 1))

    def _fill_forks(self, out: HrRow, sample: SampleSpec, specs: Sequence[SampleSpec]) -> None:
        forks = (HrRow * len(specs))()
        self._held.append(forks)
        self._special.append(out)
        out.forks, out.fork_count = ctypes.addressof(forks), len(specs)
        for fork, spec in zip(forks, specs, strict=True):
            fork.draws = True
            self._fill_sampling(fork, spec)
            is_shared = spec.adjustment is sample.adjustment and spec.banned_ids == sample.banned_ids
            fork.adjust = out.adjust if is_shared else self._adjust(spec)

    def _adjust(self, spec: SampleSpec) -> int | None:
        how = spec.adjustment
        if how is None and not spec.banned_ids:
            return None
        if how is None or how.seen is not None or spec.banned_ids:
            held = AdjustStruct(how, spec.banned_ids)
            self._held.append(held)
            return held.address
        if not isinstance(how.struct, AdjustStruct):
            how.struct = AdjustStruct(how, ())
        return how.struct.address

    def _fill_scores(self, out: HrRow, row: StepRow) -> None:
        self._special.append(out)
        scores = ScoreStructs(row.scored_ids, row.score_tops)
        self._held.append(scores)
        self._scores[id(row)] = scores
        out.scores, out.score_count = scores.address, len(row.scored_ids)

    def _fill_sampling(self, out: HrRow, spec: SampleSpec) -> None:
        params = spec.params
        out.temperature, out.min_p, out.top_p, out.top_k = params.temperature, params.min_p, params.top_p, params.top_k
        out.position, out.key = spec.position, (params.seed + spec.choice) & KEY_MASK
        out.wants_logprob = params.logprobs >= 0 or spec.candidates > 0
        if count := spec.candidates or max(params.logprobs, 0):
            top = (HrTop * count)()
            self._held.append(top)
            self._special.append(out)
            out.top, out.top_count, out.top_is_raw = ctypes.addressof(top), count, not spec.candidates

    def _grow(self, count: int) -> None:
        self._memory = (HrRow * count)()
        self._address = ctypes.addressof(self._memory)
        self._rows = list(self._memory)  # one view a row, made once


def _result(out: HrRow, row: StepRow) -> Sampled | None:
    if out.is_nan:
        return NOT_FINITE if not row.forks else replace(NOT_FINITE, forks=(NOT_FINITE,) * len(row.forks))
    if row.sample is None:
        return None
    if not row.forks:
        return _drawn(out, row.sample)
    forks = (HrRow * out.fork_count).from_address(out.forks)
    return replace(
        _drawn(out, row.sample), forks=tuple(_drawn(fork, spec) for fork, spec in zip(forks, row.forks, strict=True))
    )


def _drawn(out: HrRow, spec: SampleSpec) -> Sampled:
    logprob = out.logprob if spec.params.logprobs >= 0 and out.token >= 0 else None
    if not out.top_count:
        return Sampled(out.token, logprob, False)
    tops = [(top.id, top.logprob) for top in (HrTop * out.top_count).from_address(out.top) if top.id >= 0]
    if spec.candidates:
        return Sampled(out.token, logprob, False, tuple(Candidate(*top) for top in tops))
    ids, logprobs = zip(*tops, strict=True) if out.token >= 0 else ((), ())
    return Sampled(out.token, logprob, False, top_ids=ids, top_logprobs=logprobs)
