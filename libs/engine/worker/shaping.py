"""What a resident's parameters do to the draw of its next token, beyond filters: a function of its ids alone. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

import numpy as np

from kernels.adjust import mask_of
from libs.contracts.messages import BadWord, SamplingParams
from libs.engine.adjustment import Adjustment, SeenIds

NO_IDS: tuple[int, ...] = ()


class Shaping:
    """Made when a sequence comes to a worker, from all ids known then; told of each that follows."""

    def __init__(
        self,
        params: SamplingParams,
        ending_ids: frozenset[int],
        ids: Sequence[int],
        prompt_tokens: int,
        vocab_size: int,
    ) -> None:
        self.adjustment = _adjustment(params, ids, prompt_tokens, vocab_size)
        self._seen = self.adjustment.seen if self.adjustment else None
        self._min_tokens = params.min_tokens
        self._ending_ids = tuple(sorted(ending_ids))
        self._bad = BadWords(params.bad_words) if params.bad_words else None
        self._prompt_tokens = prompt_tokens

    def add(self, token_id: int) -> None:
        """The answer has grown by this id."""
        if self._seen is not None:
            self._seen.add(token_id)

    def banned_ids(self, ids: Sequence[int]) -> tuple[int, ...]:
        """What must not follow these ids."""
        banned = self._ending_ids if len(ids) - self._prompt_tokens < self._min_tokens else NO_IDS
        return banned if self._bad is None else banned + self._bad.completions(ids, self._prompt_tokens)


class BadWords:
    """Which ids would complete a word that an answer must not have; the prompt is no part of it."""

    def __init__(self, words: Sequence[BadWord]) -> None:
        self._alone = tuple(dict.fromkeys(word.ids[0] for word in words if len(word.ids) == 1))
        self._after = defaultdict[int, list[tuple[int, ...]]](list)  # by the id before the last
        for word in words:
            if len(word.ids) > 1:
                self._after[word.ids[-2]].append(word.ids)

    def completions(self, ids: Sequence[int], prompt_tokens: int) -> tuple[int, ...]:
        """Last ids of the words whose other ids are the latest of the answer."""
        if len(ids) == prompt_tokens or ids[-1] not in self._after:
            return self._alone
        return self._alone + tuple(
            word[-1]
            for word in self._after[ids[-1]]
            if len(word) - 1 <= len(ids) - prompt_tokens and tuple(ids[1 - len(word) :]) == word[:-1]
        )


def shaping_of(
    params: SamplingParams, ending_ids: frozenset[int], ids: Sequence[int], prompt_tokens: int, vocab_size: int
) -> Shaping | None:
    """None for parameters that ask for nothing of the kind, as most do."""
    is_shaped = params.min_tokens or params.logit_bias or params.allowed_token_ids or params.bad_words
    if not is_shaped and not _has_penalty(params):
        return None
    return Shaping(params, ending_ids, ids, prompt_tokens, vocab_size)


def _has_penalty(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or bool(params.presence_penalty or params.frequency_penalty)


def _adjustment(params: SamplingParams, ids: Sequence[int], prompt_tokens: int, vocab_size: int) -> Adjustment | None:
    """None where banning a few ids is all there is."""
    how = Adjustment()
    if _has_penalty(params):
        repeats = ids[:prompt_tokens] if params.repetition_penalty != 1 else NO_IDS
        how.seen = SeenIds(repeats, islice(ids, prompt_tokens, None))
        how.repetition = params.repetition_penalty
        how.frequency, how.presence = params.frequency_penalty, params.presence_penalty
    if params.logit_bias:
        how.bias_ids_B = np.array([bias.token_id for bias in params.logit_bias], np.int32)
        how.bias_B = np.array([bias.bias for bias in params.logit_bias], np.float32)
    if params.allowed_token_ids:
        how.allowed_W = mask_of(params.allowed_token_ids, vocab_size)
    return how if how.seen is not None or params.logit_bias or params.allowed_token_ids else None
