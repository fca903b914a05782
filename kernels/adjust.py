"""What becomes of a row's logits before a token is drawn: penalties, biases, masks, bans.

Axes: V vocabulary, S seen ids, B biased ids, W words of ⌈V / 32⌉, X banned ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WORD_BITS = 32

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Penalties:
    """Of ids that were seen, all different; `counts_S` is how often the answer has each, 0 in the prompt alone."""

    seen_ids_S: Ids
    counts_S: Ids
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0


def adjust(
    logits_V: Floats,
    penalties: Penalties | None = None,
    bias: tuple[Ids, Floats] | None = None,
    masks_W: Sequence[Words] = (),
    banned_ids_X: Sequence[int] = (),
) -> Floats:
    """A copy of the logits after, in this order and each step rounded to float32:

    1. of a seen id: x / repetition where x > 0, else x · repetition; then, where the answer has it,
       x − frequency · count; then x − presence
    2. x + bias of an id that has one
    3. −∞ where bit (id mod 32) of word ⌊id / 32⌋ of a mask is 0, and at every banned id

    Args:
        logits_V: [V] float32.
        bias: ids [B], all different, and what is added [B].
        masks_W: each [W] uint32; bits beyond the vocabulary mean nothing.

    Returns: [V] float32.
    """
    adjusted_V = logits_V.copy()
    if penalties is not None:
        adjusted_V[penalties.seen_ids_S] = _penalised(adjusted_V[penalties.seen_ids_S], penalties)
    if bias is not None:
        adjusted_V[bias[0]] += bias[1]
    for mask_W in masks_W:
        adjusted_V[~allowed_ids(mask_W, len(adjusted_V))] = -np.inf
    adjusted_V[list(banned_ids_X)] = -np.inf
    return adjusted_V


def allowed_ids(mask_W: Words, vocab_size: int) -> npt.NDArray[np.bool_]:
    """[V]: what a mask allows."""
    bits = np.unpackbits(mask_W.astype("<u4").view(np.uint8), bitorder="little", count=vocab_size)
    return bits.astype(np.bool_)


def mask_of(ids: Sequence[int], vocab_size: int) -> Words:
    """[W]: the mask that allows these ids alone."""
    bits = np.zeros(-(-vocab_size // WORD_BITS) * WORD_BITS, np.uint8)
    bits[list(ids)] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


def _penalised(x_S: Floats, penalties: Penalties) -> Floats:
    repetition, frequency = np.float32(penalties.repetition), np.float32(penalties.frequency)
    repeated_S = np.where(x_S > 0, x_S / repetition, x_S * repetition)
    counts_S = penalties.counts_S
    counted_S = repeated_S - frequency * counts_S.astype(np.float32) - np.float32(penalties.presence)
    penalised_S: Floats = np.where(counts_S > 0, counted_S, repeated_S)
    return penalised_S
