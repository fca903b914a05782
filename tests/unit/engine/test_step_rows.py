"""Rows in the form that the native kernels take."""

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.native.structs import HrAdjust, HrRow
from libs.contracts.messages import SamplingParams
from libs.engine.adjustment import Adjustment, SeenIds
from libs.engine.native.step_rows import StepRows
from libs.engine.rows import Sampled, SampleSpec, StepRow


def spec(position: int = 0, choice: int = 0, banned: tuple[int, ...] = (), **params: Any) -> SampleSpec:
    return SampleSpec(SamplingParams(**params), position, choice, banned)


def seen(rows: StepRows, count: int) -> list[HrRow]:
    """The rows as C sees them."""
    return list((HrRow * count).from_address(rows.rows_address))


def numbers(address: int, count: int) -> list[int]:
    return list((ctypes.c_int32 * count).from_address(address))


def banned_of(row: HrRow) -> list[int]:
    adjust = HrAdjust.from_address(row.adjust)
    return numbers(adjust.banned, adjust.banned_count)


def test_every_field_arrives() -> None:
    """Ids and tables are flat arrays; each row points into them."""
    rows = StepRows(16)
    params = dict(temperature=0.5, min_p=0.1, top_p=0.9, top_k=7, seed=(1 << 64) - 1, logprobs=0)

    rows.fill(
        [
            StepRow([5, 6, 7], 30, [3, 1, 9, 9], spec(4, 2, (11, 12), **params)),
            StepRow((8,), 0, range(2), None),
            StepRow([9], 0, [4], spec(banned=(13,))),
        ]
    )

    first, second, third = seen(rows, 3)
    assert numbers(rows.ids_address, rows.tokens) == [5, 6, 7, 8, 9]
    assert (first.start, first.tokens, first.base, first.draws) == (0, 3, 30, 1)
    assert (second.start, second.tokens, second.base, second.draws) == (3, 1, 0, 0)
    assert numbers(first.table, 3) == [3, 1, 9] and numbers(second.table, 1) == [0]
    assert (first.temperature, first.min_p, first.top_p, first.top_k) == (0.5, 0.1, 0.9, 7)
    assert (first.position, first.key, first.wants_logprob) == (4, 1, 1)
    assert banned_of(first) == [11, 12]
    assert banned_of(third) == [13] and numbers(third.table, 1) == [4]


def test_nothing_of_an_earlier_step_is_left() -> None:
    """A row that draws plainly after one that banned, filtered and wanted logprobs."""
    rows = StepRows(16)
    rows.fill([StepRow([1], 0, [0], spec(3, 0, (5,), top_k=3, top_p=0.5, min_p=0.1, logprobs=0))])

    rows.fill([StepRow([2], 0, [0], spec())])

    (row,) = seen(rows, 1)
    assert (row.adjust, row.top_k, row.top_p, row.min_p, row.wants_logprob) == (None, 0, 1.0, 0.0, 0)


def test_more_rows_than_ever_before() -> None:
    """The arrays grow."""
    rows = StepRows(16)

    rows.fill([StepRow([n], 0, [n], None) for n in range(1000)])

    assert [numbers(row.table, 1) for row in seen(rows, 1000)] == [[n] for n in range(1000)]


def test_answers_come_back_in_order() -> None:
    """A token with or without its log-probability, nothing, or the notice that a row was not finite."""
    rows, asked = StepRows(16), [spec(), spec(logprobs=0), None, spec(), None]
    steps = [StepRow([1], 0, [0], sample) for sample in asked]
    rows.fill(steps)
    for row, answer in zip(
        seen(rows, 5), [(7, 0, 0.0), (8, 0, -1.5), (-1, 0, 0.0), (3, 1, 0.0), (-1, 1, 0.0)], strict=True
    ):
        row.token, row.is_nan, row.logprob = answer

    nan = Sampled(-1, None, True)
    assert rows.results(steps) == [Sampled(7, None, False), Sampled(8, -1.5, False), None, nan, nan]


@pytest.mark.parametrize("row", [StepRow([], 0, [0], None), StepRow([1], 16, [0], None)], ids=["no tokens", "no block"])
def test_a_row_that_would_touch_foreign_memory_is_refused(row: StepRow) -> None:
    """C would not notice."""
    with pytest.raises(AssertionError):
        StepRows(16).fill([row])


def test_forks_and_candidates_are_of_their_step_alone() -> None:
    """A fork has its own key and its own banned ids; the step after has neither forks nor candidates."""
    rows = StepRows(16)
    rows.fill([StepRow([1], 0, [0], spec(0, 2, (7,)), (spec(0, 0, (8, 9)), spec(0, 1)))])
    (row,) = seen(rows, 1)
    forks = (HrRow * row.fork_count).from_address(row.forks)
    assert [(fork.key, fork.draws) for fork in forks] == [(0, 1), (1, 1)]
    assert (banned_of(row), banned_of(forks[0]), forks[1].adjust) == ([7], [8, 9], None)
    rows.fill([StepRow([1], 0, [0], SampleSpec(SamplingParams(), 0, 0, (), candidates=4))])
    assert (row.fork_count, row.top_count, row.wants_logprob) == (0, 4, 1)

    rows.fill([StepRow([1], 0, [0], spec())])

    assert (row.fork_count, row.top_count, row.wants_logprob) == (0, 0, 0)


def test_an_adjustment_arrives_as_it_is_in_this_step() -> None:
    """What is seen grows between steps; arrays are passed where they lie, and what is not there is null."""
    ids_B, bias_B, mask_W = np.array([4, 9], np.int32), np.array([0.5, -1], np.float32), np.zeros(2, np.uint32)
    how = Adjustment(SeenIds([5], [6]), 1.5, 0.25, -0.5, ids_B, bias_B, mask_W=mask_W)
    rows, step = StepRows(16), [StepRow([1], 0, [0], replace(spec(), adjustment=how))]
    for token_id in range(1000):
        how.seen.add(token_id)  # type: ignore[union-attr]

    rows.fill(step)

    adjust = HrAdjust.from_address(seen(rows, 1)[0].adjust)
    assert numbers(adjust.seen, adjust.seen_count)[:4] == [5, 6, 0, 1] and adjust.seen_count == 1000
    assert numbers(adjust.counts, 3) == [1, 2, 1]
    assert (adjust.repetition, adjust.frequency, adjust.presence) == (1.5, 0.25, -0.5)
    assert (adjust.bias_ids, adjust.bias, adjust.bias_count) == (ids_B.ctypes.data, bias_B.ctypes.data, 2)
    assert (adjust.allowed, adjust.mask, adjust.mask_ready) == (None, mask_W.ctypes.data, None)
    assert adjust.banned_count == 0


def test_forks_share_the_adjustment_of_their_row() -> None:
    """Logits that are changed alike are changed once."""
    one = replace(spec(0, 2, (7,)), adjustment=Adjustment())
    rows = StepRows(16)

    rows.fill([StepRow([1], 0, [0], one, (replace(one, choice=0), replace(one, choice=1)))])

    (row,) = seen(rows, 1)
    assert [fork.adjust for fork in (HrRow * 2).from_address(row.forks)] == [row.adjust, row.adjust]
