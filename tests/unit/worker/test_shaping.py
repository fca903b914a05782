"""What a resident's parameters do to the draw of its next token: ids alone decide."""

from typing import Any

import numpy as np
import pytest

from kernels.adjust import allowed_ids
from libs.contracts.messages import BadWord, Chunk, SamplingParams, TokenBias
from libs.engine.worker.shaping import BadWords, Shaping, shaping_of
from tests.fakes.engine import EOS_IDS, VOCAB_SIZE, expected
from tests.unit.worker.orders import Stepper, ids_of, prompt, resident

V = 100


def shaping(ids: tuple[int, ...] = (5, 6), prompt_tokens: int = 2, **params: Any) -> Shaping:
    made = shaping_of(SamplingParams(**params), frozenset({9, 4}), ids, prompt_tokens, V)
    assert made is not None
    return made


def seen(of: Shaping) -> dict[int, int]:
    assert of.adjustment is not None and of.adjustment.seen is not None
    return dict(zip(of.adjustment.seen.ids, of.adjustment.seen.counts, strict=True))


def test_plain_parameters_cost_nothing() -> None:
    """Filters, stops and seeds are the business of others."""
    params = SamplingParams(temperature=0.5, top_k=3, stop_token_ids=(9,), logprobs=0)

    assert shaping_of(params, frozenset(), (1, 2), 2, V) is None


def test_repetition_sees_the_prompt_and_the_other_penalties_only_the_answer() -> None:
    """As the definitions of each say; what follows is counted as it comes."""
    repeating, frequent = shaping((5, 6, 7), repetition_penalty=1.1), shaping((5, 6, 7), frequency_penalty=1.0)
    for one in (repeating, frequent):
        one.add(6)

    assert seen(repeating) == {5: 0, 6: 1, 7: 1}
    assert seen(frequent) == {7: 1, 6: 1}


def test_what_is_rebuilt_is_what_has_grown() -> None:
    """A worker that takes a sequence over knows the same of it."""
    params: dict[str, Any] = dict(repetition_penalty=0.9, presence_penalty=0.1)
    grown = shaping((5, 6), **params)
    for token_id in (7, 6, 7):
        grown.add(token_id)

    assert seen(grown) == seen(shaping((5, 6, 7, 6, 7), **params))


def test_biases_and_allowed_ids_become_arrays() -> None:
    """Once, when the sequence comes."""
    adjustment = shaping(logit_bias=(TokenBias(3, 1.5), TokenBias(1, -100)), allowed_token_ids=(0, 99, 33)).adjustment

    assert adjustment is not None
    assert adjustment.bias_ids_B is not None and adjustment.bias_B is not None and adjustment.allowed_W is not None
    assert (adjustment.bias_ids_B.tolist(), adjustment.bias_B.tolist()) == ([3, 1], [1.5, -100])
    assert np.flatnonzero(allowed_ids(adjustment.allowed_W, V)).tolist() == [0, 33, 99]


def test_ends_are_banned_below_min_tokens() -> None:
    """And no longer from there on."""
    one = shaping(min_tokens=2)

    assert [one.banned_ids((5, 6, *range(n))) for n in range(4)] == [(4, 9), (4, 9), (), ()]


@pytest.mark.parametrize(
    ("ids", "banned"),
    [
        ((), {1}),
        ((2,), {1, 3}),
        ((2, 2), {1, 3}),
        ((2, 3), {1, 4}),
        ((8, 2, 3), {1, 4}),
        ((2, 8, 3), {1}),
        ((3,), {1}),
        ((2, 3, 4), {1}),
    ],
)
def test_a_bad_word_s_last_id_is_banned_behind_its_others(ids: tuple[int, ...], banned: set[int]) -> None:
    """One of one id always is; the prompt is no part of a word."""
    words = BadWords((BadWord((1,)), BadWord((2, 3)), BadWord((2, 3, 4))))

    for before in ((), (2,), (9, 2, 3)):
        assert set(words.completions((*before, *ids), len(before))) == banned


@pytest.mark.parametrize(
    "params",
    [
        dict(repetition_penalty=1.3, presence_penalty=0.5),
        dict(logit_bias=(TokenBias(3, 1.5),), min_tokens=5, ignore_eos=False),
        dict(allowed_token_ids=tuple(range(0, 64)), bad_words=tuple(BadWord((n,)) for n in range(0, 64, 3))),
    ],
)
def test_a_worker_draws_as_the_ids_say(params: dict[str, Any]) -> None:
    """Token by token what is expected of all ids at once, also where a worker begins in the middle."""
    worker, wanted = Stepper(), SamplingParams(**({"max_tokens": 12, "ignore_eos": True} | params))
    whole, end = expected(prompt(5), wanted)
    first = resident(1, prompt(5), [4, 5], params=wanted, until=12)
    later = resident(2, (*prompt(5), *whole[:3]), [6, 7], params=wanted, until=12, prompt_tokens=5)

    result = worker.order(added=[first, later], chunks=[Chunk(1, 5), Chunk(2, 8)])
    assert result is not None
    rows = [*result.rows, *worker.run()]

    assert ids_of(rows, 1) == whole and ids_of(rows, 2) == whole[3:]
    assert [row.end for row in rows if row.end] == [end, end]


def test_a_sequence_without_a_token_to_go_on_with_ends_dead() -> None:
    """All it computed is committed, and no token is told."""
    params = SamplingParams(max_tokens=9, allowed_token_ids=EOS_IDS, min_tokens=2)
    worker = Stepper()

    result = worker.order(added=[resident(1, prompt(3), [4], params=params, until=9)], chunks=[Chunk(1, 3)])

    assert result is not None
    (row,) = result.rows
    assert (row.end, row.ids, row.cursor) == ("dead_end", (), 3)
    assert worker.step() is None


@pytest.mark.parametrize(
    "params",
    [
        dict(logit_bias=(TokenBias(VOCAB_SIZE, 1.0),)),
        dict(allowed_token_ids=(VOCAB_SIZE,)),
        dict(bad_words=(BadWord((3, VOCAB_SIZE)),)),
        dict(bad_words=(BadWord(()),)),
        dict(stop_token_ids=(VOCAB_SIZE,)),
        dict(repetition_penalty=0.0),
    ],
)
def test_parameters_beyond_their_bounds_end_their_sequence_alone(params: dict[str, Any]) -> None:
    """A gateway refuses them; should one come through all the same, no kernel sees it."""
    bad = resident(1, prompt(3), [4], params=SamplingParams(**params))
    good = resident(2, prompt(3), [5])

    result = Stepper().order(added=[bad, good], chunks=[Chunk(1, 3), Chunk(2, 3)])

    assert result is not None
    assert [(row.sequence, row.end) for row in result.found] == [(1, "error")]
    assert [(row.sequence, len(row.ids)) for row in result.rows] == [(2, 1)]
