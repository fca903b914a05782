"""What becomes of logits before a draw: the reference against plain arithmetic, the native kernels against it."""

import math
from collections.abc import Sequence
from threading import Timer

import numpy as np
import numpy.typing as npt
import pytest
import torch

from kernels.adjust import Penalties, adjust, allowed_ids, mask_of
from libs.engine.adjustment import Adjustment, SeenIds
from tests.kernels.native_ops import Draw, Ops
from tests.kernels.test_sample import GREEDY, PLAIN

VOCABULARIES = (1, 31, 33, 130, 1001)
FILTERED = (0.8, 0.01, 50, 0.9)


def drawn_ids(rng: np.random.Generator, count: int, V: int) -> list[int]:
    return [int(i) for i in rng.integers(V, size=count)]


def adjustment(rng: np.random.Generator, V: int) -> Adjustment:
    """Everything at once, with ids in prompt and answer, in one of them, and in none."""
    biased = rng.choice(V, size=min(V, 9), replace=False).astype(np.int32)
    return Adjustment(
        seen=SeenIds(drawn_ids(rng, V, V), drawn_ids(rng, V // 2, V)),
        repetition=float(rng.uniform(0.5, 2)),
        frequency=float(rng.uniform(-2, 2)),
        presence=float(rng.uniform(-2, 2)),
        bias_ids_B=biased,
        bias_B=rng.normal(size=len(biased)).astype(np.float32),
        allowed_W=mask_of([*range(0, V, 2), *range(0, V, 3)], V),
        mask_W=mask_of([*range(0, V, 2), *range(0, V, 5)], V),
    )


def reference(logits_V: npt.NDArray[np.float32], how: Adjustment, banned: Sequence[int]) -> npt.NDArray[np.float32]:
    """The reference's answer to what `Ops.sample` is given."""
    seen, bias_ids_B, bias_B = how.seen, how.bias_ids_B, how.bias_B
    assert seen is not None and bias_ids_B is not None and bias_B is not None
    numbers = np.array(seen.ids, np.int32), np.array(seen.counts, np.int32)
    penalties = Penalties(*numbers, how.repetition, how.frequency, how.presence)
    masks = [mask for mask in (how.allowed_W, how.mask_W) if mask is not None]
    return adjust(logits_V, penalties, (bias_ids_B, bias_B), masks, banned)


@pytest.mark.parametrize("V", VOCABULARIES)
def test_the_reference_is_the_definition_id_by_id(rng: np.random.Generator, V: int) -> None:
    """Repetition over prompt and answer, frequency and presence over the answer, then biases, then what is banned."""
    prompt, answer = drawn_ids(rng, V, V), drawn_ids(rng, V // 2, V)
    logits_V = (rng.normal(size=V) * 5).astype(np.float32)
    bias = {int(i): float(np.float32(rng.normal())) for i in rng.integers(V, size=5)}
    allowed, banned = {*drawn_ids(rng, V, V), 0}, drawn_ids(rng, 1, V)
    seen = SeenIds(prompt, answer)
    numbers = np.array(seen.ids, np.int32), np.array(seen.counts, np.int32)
    ids_and_bias = np.array([*bias], np.int32), np.array([*bias.values()], np.float32)

    adjusted_V = adjust(logits_V, Penalties(*numbers, 1.5, 0.25, -0.5), ids_and_bias, [mask_of([*allowed], V)], banned)

    for i in range(V):
        x = float(logits_V[i])
        if i in prompt or i in answer:
            x = x / 1.5 if x > 0 else x * 1.5
        if i in answer:
            x = x - 0.25 * answer.count(i) + 0.5
        x += bias.get(i, 0)
        expected = x if i in allowed and i not in banned else -math.inf
        assert adjusted_V[i] == pytest.approx(expected, abs=1e-5)


def test_masks_have_a_bit_an_id() -> None:
    """Bit id mod 32 of word ⌊id / 32⌋; ids of both ends of a word and the last one of an odd vocabulary."""
    mask_W = mask_of([0, 31, 32, 66], 67)

    assert mask_W.tolist() == [1 | 1 << 31, 1, 1 << 2]
    assert np.flatnonzero(allowed_ids(mask_W, 67)).tolist() == [0, 31, 32, 66]


def test_seen_ids_are_counted_as_they_come() -> None:
    """One by one is the same as all at once; the prompt's own count nothing."""
    grown = SeenIds([5, 9, 5], [])
    for token_id in (7, 9, 7):
        grown.add(token_id)
    whole = SeenIds([5, 9, 5], [7, 9, 7])

    for seen in (grown, whole):
        assert dict(zip(seen.ids, seen.counts, strict=True)) == {5: 0, 9: 1, 7: 2}


@pytest.mark.parametrize("filters", [GREEDY, PLAIN, FILTERED])
@pytest.mark.parametrize("V", VOCABULARIES)
def test_native_draws_from_exactly_the_reference_s_logits(
    ops: Ops, rng: np.random.Generator, V: int, filters: tuple[float, float, int, float]
) -> None:
    """A draw under an adjustment is bit for bit the plain draw from what the reference makes of the logits."""
    logits, hows = torch.randn(12, V) * 4, [adjustment(rng, V) for _ in range(12)]
    banned = [tuple(drawn_ids(rng, V // 8, V)) for _ in range(12)]
    expected_RV = np.stack([reference(logits[r].numpy(), hows[r], banned[r]) for r in range(12)])
    rows = [Draw(filters, 7 * r, r, banned[r], adjustment=hows[r]) for r in range(12)]

    drawn = ops.sample(logits, rows)

    for r, one in enumerate(drawn):
        kept = np.flatnonzero(expected_RV[r] > -np.inf)
        if not len(kept):
            assert (one.token, one.is_nan) == (-1, False)
            continue
        # −10³⁰ weighs nothing and draws nothing, as −∞ does, but is a logit like any other.
        plain = torch.from_numpy(np.where(expected_RV[r] > -np.inf, expected_RV[r], np.float32(-1e30)))
        (alone,) = ops.sample(plain[None], [Draw(filters, 7 * r, r)])
        assert one.token == alone.token and one.token in kept


def test_adjustments_change_nothing_of_other_rows_or_of_logprobs(ops: Ops, rng: np.random.Generator) -> None:
    """Rows draw together, in any order of tiles, as each does alone; logprobs are those of the raw logits."""
    V = 1001
    logits = torch.randn(9, V) * 4
    rows = [Draw(PLAIN, r, r, (), adjustment=adjustment(rng, V) if r % 3 else None) for r in range(9)]

    with ops.shuffled(threads=2, seed=5):
        together = ops.sample(logits, rows)

    assert together == [ops.sample(logits[r : r + 1], rows[r : r + 1])[0] for r in range(9)]
    logprobs = torch.log_softmax(logits.double(), 1)
    for r, one in enumerate(together):
        assert one.logprob == pytest.approx(float(logprobs[r, one.token]), abs=2e-5)


@pytest.mark.parametrize("filters", [GREEDY, PLAIN, FILTERED])
def test_where_everything_is_banned_nothing_is_drawn(ops: Ops, filters: tuple[float, float, int, float]) -> None:
    """No token, which is another thing than logits that are not finite."""
    nothing = Adjustment(mask_W=np.zeros(4, np.uint32))

    stuck, beside = ops.sample(torch.randn(2, 100), [Draw(filters, adjustment=nothing), Draw(filters)])

    assert (stuck.token, stuck.is_nan) == (-1, False)
    assert beside.token >= 0


def test_a_mask_may_be_filled_while_the_step_runs(ops: Ops) -> None:
    """The draw waits for the flag, and takes what lies there then."""
    mask_W, ready = np.zeros(4, np.uint32), np.zeros(1, np.int32)

    def fill() -> None:
        mask_W[2] = 1 << 5
        ready[0] = 1

    timer = Timer(0.02, fill)
    timer.start()
    (one,) = ops.sample(torch.randn(1, 100), [Draw(PLAIN, adjustment=Adjustment(mask_W=mask_W, mask_ready=ready))])
    timer.join()

    assert one.token == 69
